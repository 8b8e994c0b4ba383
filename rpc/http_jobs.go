package rpc

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// bodyLimit is how long a client may take to send a body.
const bodyLimit = 30 * time.Second

// body reads the JSON that a request brings; nil: nothing.
func body(w http.ResponseWriter, r *request) ([]byte, error) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyLimit)) // a test's recorder has none
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCommand))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, muster.Errorf(muster.KindInvalid, "the body is larger than %s", muster.Bytes(maxCommand)).WithHint("Submit the jobs in parts")
	}
	if err != nil {
		return nil, muster.Errorf(muster.KindUsage, "the body can't be read: %v", err)
	}
	if len(text) == 0 {
		return nil, nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, muster.Errorf(muster.KindUsage, "the content type %q is not read here", r.Header.Get("Content-Type")).
			WithHint("Say Content-Type: application/json")
	}
	return text, nil
}

// httpSubmit makes jobs, of specs or of a job file.
func (s *Server) httpSubmit(w http.ResponseWriter, r *request) error {
	text, err := body(w, r)
	if err != nil {
		return err
	}
	parsed, err := wire.ParseSubmitJSON(text)
	if err != nil {
		return err
	}
	if parsed.HCL != "" {
		if parsed.Jobs, err = s.parseFile(r.Context(), parsed.HCL, parsed.Variables); err != nil {
			return err
		}
	}
	request := &wire.SubmitRequest{RequestId: parsed.RequestID}
	for _, spec := range parsed.Jobs {
		request.Specs = append(request.Specs, wire.JobSpecOf(spec))
	}
	reply, err := s.Submit(r.Context(), request)
	if err != nil {
		return err
	}
	made := make([]wire.SubmittedJSON, len(reply.Ids))
	for i, id := range reply.Ids {
		made[i] = wire.SubmittedJSON{ID: id, Name: parsed.Jobs[i].Name}
	}
	write(w, http.StatusOK, wire.ItemsOf(made))
	return nil
}

// parsesAtOnce bounds the child processes that read job files.
const parsesAtOnce = 4

// badFile refuses a job file, with what is wrong where.
type badFile struct {
	reason      *muster.Error
	diagnostics []wire.DiagnosticJSON
}

func (b *badFile) Error() string { return b.reason.Error() }
func (b *badFile) Unwrap() error { return b.reason }

// parseFile reads a job file away from this process.
func (s *Server) parseFile(ctx context.Context, source string, variables map[string]string) ([]*muster.JobSpec, error) {
	if s.parse == nil {
		return nil, muster.Errorf(muster.KindInvalid, "this server reads no job files").WithHint(`Send the specs: {"jobs": […]}, as muster validate -o json prints them`)
	}
	select {
	case s.parsing <- struct{}{}:
		defer func() { <-s.parsing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	jobs, diagnostics, err := s.parse(ctx, source, variables)
	switch {
	case err != nil:
		s.metrics.parsed.WithLabelValues("failed").Inc()
		return nil, err
	case len(diagnostics) > 0:
		s.metrics.parsed.WithLabelValues("invalid").Inc()
		first := diagnostics[0]
		return nil, &badFile{muster.Errorf(muster.KindInvalid, "the job file has %s, the first at line %d: %s", plural(len(diagnostics), "mistake"),
			first.Line, first.Summary), diagnostics}
	}
	s.metrics.parsed.WithLabelValues("ok").Inc()
	return jobs, nil
}

func plural(n int, thing string) string {
	if n == 1 {
		return "a " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

// httpListJobs lists jobs of all users and states, newest first, unless the query says otherwise.
func (s *Server) httpListJobs(w http.ResponseWriter, r *request) error {
	q := &wire.ListJobsRequest{Stale: r.stale, User: "*", Queue: r.values.Get("queue"), Ended: true, Limit: r.count("limit"),
		PageToken: r.values.Get("page_token"), Waits: true}
	if user := r.values.Get("user"); user != "" {
		q.User = user
	}
	for _, list := range r.values["state"] {
		q.States = append(q.States, strings.Split(list, ",")...)
	}
	reply, err := s.ListJobs(r.Context(), q)
	if err != nil {
		return err
	}
	body := wire.ItemsOf(wire.JobsJSON(reply.Jobs))
	body.NextPageToken = reply.NextPageToken
	write(w, http.StatusOK, body)
	return nil
}

func (s *Server) httpGetJob(w http.ResponseWriter, r *request) error {
	ref, err := jobParameter(r)
	if err != nil {
		return err
	}
	job, err := s.GetJob(r.Context(), &wire.GetJobRequest{Job: ref, Stale: r.stale, Spec: true, Waits: true})
	if err != nil {
		return err
	}
	write(w, http.StatusOK, wire.ItemsOf(wire.JobsJSON([]*wire.JobInfo{job})))
	return nil
}

func (s *Server) httpWhy(w http.ResponseWriter, r *request) error {
	ref, err := jobParameter(r)
	if err != nil {
		return err
	}
	why, err := s.Why(r.Context(), &wire.WhyRequest{Job: ref, Stale: r.stale})
	if err != nil {
		return err
	}
	write(w, http.StatusOK, wire.ItemsOf(wire.WhyJSONOf(why)))
	return nil
}

// httpCancel asks a job to stop; it answers with the job as it is then.
func (s *Server) httpCancel(w http.ResponseWriter, r *request) error {
	ref, err := jobParameter(r)
	if err != nil {
		return err
	}
	text, err := body(w, r)
	if err != nil {
		return err
	}
	asked, err := wire.ParseCancelJSON(text)
	if err != nil {
		return err
	}
	if _, err := s.Cancel(r.Context(), &wire.CancelRequest{RequestId: asked.RequestID, Now: asked.Now, Jobs: []*wire.JobRef{ref}}); err != nil {
		return err
	}
	job, err := s.GetJob(r.Context(), &wire.GetJobRequest{Job: ref, Stale: true})
	if err != nil {
		return err
	}
	write(w, http.StatusOK, wire.ItemsOf(wire.JobsJSON([]*wire.JobInfo{job})))
	return nil
}

func (s *Server) httpListNodes(w http.ResponseWriter, r *request) error {
	nodes, err := s.httpNodes(r)
	if err != nil {
		return err
	}
	write(w, http.StatusOK, wire.ItemsOf(wire.NodesJSON(nodes)))
	return nil
}

func (s *Server) httpListGPUs(w http.ResponseWriter, r *request) error {
	nodes, err := s.httpNodes(r)
	if err != nil {
		return err
	}
	write(w, http.StatusOK, wire.ItemsOf(wire.GPUsJSON(nodes)))
	return nil
}

func (s *Server) httpNodes(r *request) ([]*wire.NodeInfo, error) {
	reply, err := s.ListNodes(r.Context(), &wire.ListNodesRequest{Stale: r.stale})
	return reply.GetNodes(), err
}

func (s *Server) httpListServers(w http.ResponseWriter, r *request) error {
	reply, err := s.ListServers(r.Context(), &wire.ListServersRequest{Stale: r.stale})
	if err != nil {
		return err
	}
	write(w, http.StatusOK, wire.ItemsOf(wire.ServersJSON(reply.Servers)))
	return nil
}

func (s *Server) httpMetrics(w http.ResponseWriter, r *request) error {
	s.scrape.ServeHTTP(w, r.Request)
	return nil
}
