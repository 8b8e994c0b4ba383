package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// The HTTP API: the same requests as over gRPC, in the muster.v1 JSON of wire. What there is stands in one table
// (http_routes.go), which serves, checks queries, and writes the OpenAPI file.

// answer handles a request whose query was checked; an error becomes the error JSON with its status.
type answer func(w http.ResponseWriter, r *request) error

// request is an HTTP request with its query.
type request struct {
	*http.Request
	values url.Values
	stale  bool // ?consistency=stale
}

// operation is what one method of a path does.
type operation struct {
	summary string
	method  string // of gRPC, whose permission it needs; "": anybody's
	query   []parameter
	takes   any  // the JSON form of the body; nil: none
	gives   any  // the JSON form of the answer; nil: text
	lines   bool // the answer is lines, each an object of that form
	texts   bool // or lines of text, as the query says
	handle  answer
}

// parameter is one that a query may have.
type parameter struct {
	name   string
	doc    string
	number bool
	words  []string // the only values; nil: any
	many   bool     // it may stand there more than once
}

// methods are the operations of one path by HTTP method.
type methods map[string]operation

// readyLimit is how long a ready server takes, at most, to be as new as the leader.
const readyLimit = time.Second

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	verbs := map[string]methods{}
	for path, m := range s.routes() {
		if before, verb, is := strings.Cut(path, ":"); is && before == "/v1/jobs/{id}" {
			verbs[verb] = m
			continue
		}
		mux.Handle(path, m)
	}
	mux.HandleFunc("/", nothingHere)
	served := protect(customVerbs(mux, verbs))
	return s.metrics.counting(served, func(r *http.Request) string {
		if r.Pattern == "" || r.Pattern == "/" {
			return "other"
		}
		return r.Pattern
	})
}

func nothingHere(w http.ResponseWriter, r *http.Request) {
	refuse(w, muster.Errorf(muster.KindNotFound, "there is no %s here", r.URL.Path).WithHint("A server says at /v1/openapi.json what there is"))
}

// protect keeps pages of other sites, which act in their readers' browsers, away from next.
func protect(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse(w, muster.Errorf(muster.KindDenied, "a page of %s may not use this API", r.Header.Get("Origin")))
	}))
	return onlyOwnNames(cross.Handler(next))
}

// customVerbs handles /v1/jobs/N:VERB, which the mux's patterns can't say.
func customVerbs(next http.Handler, verbs map[string]methods) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, ok := strings.CutPrefix(r.URL.Path, "/v1/jobs/")
		id, verb, isVerb := strings.Cut(rest, ":")
		if handler := verbs[verb]; ok && isVerb && handler != nil && !strings.Contains(id, "/") {
			r.SetPathValue("id", id)
			r.Pattern = "/v1/jobs/{id}:" + verb
			handler.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// onlyOwnNames refuses, on loopback, requests for another host's name: a page whose name was made to point here (DNS
// rebinding) acts in its reader's browser.
func onlyOwnNames(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if local != nil && local.IP.IsLoopback() && net.ParseIP(strings.Trim(host, "[]")) == nil && host != "localhost" {
			refuse(w, muster.Errorf(muster.KindDenied, "%q is not a name of this listener on loopback", host).WithHint("Say localhost"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (m methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	op, known := m[method]
	if !known {
		allowed := slices.Sorted(maps.Keys(m))
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		refuseWith(w, http.StatusMethodNotAllowed,
			muster.Errorf(muster.KindUsage, "%s takes %s, not %s", r.URL.Path, strings.Join(allowed, " or "), r.Method))
		return
	}
	if err := op.serve(w, r); err != nil {
		refuse(w, err)
	}
}

// serve lets a caller through who may, checks the query, and answers.
func (op *operation) serve(w http.ResponseWriter, r *http.Request) error {
	if op.method != "" {
		if err := authorise(CallerFrom(r.Context()), op.method); err != nil {
			return err
		}
	}
	asked, err := op.read(r)
	if err != nil {
		return err
	}
	return op.handle(w, asked)
}

// read checks the query, whose keys must be known.
func (op *operation) read(r *http.Request) (*request, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, muster.Errorf(muster.KindUsage, "the query can't be read: %v", err)
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		i := slices.IndexFunc(op.query, func(p parameter) bool { return p.name == key })
		if i < 0 {
			var known []string
			for _, p := range op.query {
				known = append(known, p.name)
			}
			err := muster.Errorf(muster.KindUsage, "parameter %q is not known", key)
			if len(known) == 0 {
				return nil, err.WithHint("%s takes none", r.URL.Path)
			}
			return nil, err.WithHint("Known are %s", strings.Join(known, ", "))
		}
		if err := op.query[i].check(values[key]); err != nil {
			return nil, err
		}
	}
	return &request{Request: r, values: values, stale: values.Get("consistency") == "stale"}, nil
}

func (p *parameter) check(values []string) error {
	if len(values) > 1 && !p.many {
		return muster.Errorf(muster.KindUsage, "parameter %s stands there %d times", p.name, len(values)).WithHint("Say it once")
	}
	for _, list := range values {
		words := []string{list}
		if p.many {
			words = strings.Split(list, ",")
		}
		for _, v := range words {
			if p.number {
				if n, err := strconv.ParseInt(v, 10, 32); err != nil || n < 1 {
					return muster.Errorf(muster.KindUsage, "%s %q is not a number from 1 on", p.name, v)
				}
			}
			if p.words != nil && !slices.Contains(p.words, v) {
				return muster.Errorf(muster.KindUsage, "%s %q is not known", p.name, v).WithHint("Say one of %s", strings.Join(p.words, ", "))
			}
		}
	}
	return nil
}

// count gives a number's value, 0 when it isn't there; check has read it.
func (r *request) count(name string) int64 {
	n, _ := strconv.ParseInt(r.values.Get(name), 10, 32)
	return n
}

// refuse answers with the error JSON and the status of the error's kind.
func refuse(w http.ResponseWriter, err error) {
	refuseWith(w, httpStatus(muster.KindOf(err)), err)
}

func httpStatus(kind muster.Kind) int {
	switch kind {
	case muster.KindUsage, muster.KindInvalid:
		return http.StatusBadRequest
	case muster.KindDenied:
		return http.StatusForbidden
	case muster.KindNotFound:
		return http.StatusNotFound
	case muster.KindConflict:
		return http.StatusConflict
	case muster.KindUnavailable:
		return http.StatusServiceUnavailable
	case muster.KindInfeasible:
		return http.StatusUnprocessableEntity
	}
	return http.StatusInternalServerError
}

func refuseWith(w http.ResponseWriter, status int, err error) {
	var bad *badFile
	if errors.As(err, &bad) {
		write(w, status, wire.ErrorJSONOf(bad.reason, bad.diagnostics...))
		return
	}
	write(w, status, wire.ErrorJSONOf(err))
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(body) // who has gone away needs no answer
}

func jobParameter(r *request) (*wire.JobRef, error) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil || id == 0 {
		return nil, muster.Errorf(muster.KindUsage, "%q is not the number of a job", r.PathValue("id"))
	}
	return &wire.JobRef{Id: id}, nil
}

func (s *Server) httpLive(w http.ResponseWriter, _ *request) error { return ok(w) }

func ok(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintln(w, "ok")
	return nil
}

// httpReady answers ok when this server can be used: a leader confirmed itself, and this server is as new as that.
func (s *Server) httpReady(w http.ResponseWriter, r *request) error {
	ctx, cancel := context.WithTimeout(r.Context(), readyLimit)
	defer cancel()
	if s.closing.Err() != nil {
		return errStopping
	}
	if _, err := s.read(ctx, false); err != nil {
		return err
	}
	return ok(w)
}
