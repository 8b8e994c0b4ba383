package rpc

import (
	"context"
	"encoding/json"
	"fmt"
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

// The HTTP API: the same requests as over gRPC, in the muster.v1 JSON of wire.

// answer handles a request; an error becomes the error JSON with its status.
type answer func(w http.ResponseWriter, r *http.Request) error

// methods are the answers of one path by HTTP method.
type methods map[string]answer

// laterPaths are of the contract, and not built yet.
var laterPaths = []string{"/metrics", "/v1/openapi.json", "/v1/queues", "/v1/events", "/v1/jobs/{id}/logs"}

// readyLimit is how long a ready server takes, at most, to be as new as the leader.
const readyLimit = time.Second

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/livez", methods{"GET": s.httpLive})
	mux.Handle("/readyz", methods{"GET": s.httpReady})
	mux.Handle("/v1/jobs", methods{"GET": s.httpListJobs, "POST": s.httpSubmit})
	mux.Handle("/v1/jobs/{id}", methods{"GET": s.httpGetJob})
	mux.Handle("/v1/jobs/{id}/why", methods{"GET": s.httpWhy})
	mux.Handle("/v1/nodes", methods{"GET": s.httpListNodes})
	mux.Handle("/v1/gpus", methods{"GET": s.httpListGPUs})
	mux.Handle("/v1/servers", methods{"GET": s.httpListServers})
	for _, path := range laterPaths {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			refuse(w, muster.Errorf(muster.KindNotFound, "%s is not supported yet", r.URL.Path))
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, muster.Errorf(muster.KindNotFound, "there is no %s here", r.URL.Path))
	})
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse(w, muster.Errorf(muster.KindDenied, "a page of %s may not use this API", r.Header.Get("Origin")))
	}))
	return onlyOwnNames(cross.Handler(customVerbs(mux, map[string]methods{"cancel": {"POST": s.httpCancel}})))
}

// customVerbs handles /v1/jobs/N:VERB, which the mux's patterns can't say.
func customVerbs(next http.Handler, verbs map[string]methods) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, ok := strings.CutPrefix(r.URL.Path, "/v1/jobs/")
		id, verb, isVerb := strings.Cut(rest, ":")
		if handler := verbs[verb]; ok && isVerb && handler != nil && !strings.Contains(id, "/") {
			r.SetPathValue("id", id)
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
	handle := m[method]
	if handle == nil {
		allowed := make([]string, 0, len(m))
		for name := range m {
			allowed = append(allowed, name)
		}
		slices.Sort(allowed)
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		refuseWith(w, http.StatusMethodNotAllowed,
			muster.Errorf(muster.KindUsage, "%s takes %s, not %s", r.URL.Path, strings.Join(allowed, " or "), r.Method))
		return
	}
	if err := handle(w, r); err != nil {
		refuse(w, err)
	}
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

// permit lets the caller through to what the gRPC method of that name does.
func permit(r *http.Request, method string) error {
	return authorise(CallerFrom(r.Context()), method)
}

// parameters reads the query, whose keys must be among known; consistency always is, for reads.
func parameters(r *http.Request, known ...string) (values url.Values, stale bool, err error) {
	values, err = url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, false, muster.Errorf(muster.KindUsage, "the query can't be read: %v", err)
	}
	for key := range values {
		if key != "consistency" && !slices.Contains(known, key) {
			return nil, false, muster.Errorf(muster.KindUsage, "parameter %q is not known", key).
				WithHint("Known are %s", strings.Join(append(known, "consistency"), ", "))
		}
	}
	switch c := values.Get("consistency"); c {
	case "", "default":
	case "stale":
		stale = true
	default:
		return nil, false, muster.Errorf(muster.KindUsage, "consistency %q is not known", c).WithHint(`Say stale, or leave it out`)
	}
	return values, stale, nil
}

func jobParameter(r *http.Request) (*wire.JobRef, error) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil || id == 0 {
		return nil, muster.Errorf(muster.KindUsage, "%q is not the number of a job", r.PathValue("id"))
	}
	return &wire.JobRef{Id: id}, nil
}

func (s *Server) httpLive(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintln(w, "ok")
	return nil
}

// httpReady answers ok when this server can be used: a leader confirmed itself, and this server is as new as that.
func (s *Server) httpReady(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), readyLimit)
	defer cancel()
	if s.closing.Err() != nil {
		return errStopping
	}
	if _, err := s.read(ctx, false); err != nil {
		return err
	}
	return s.httpLive(w, r)
}
