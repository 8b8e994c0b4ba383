package rpc

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// httpSubmit makes jobs: {"jobs": […], "request_id": "…"}.
func (s *Server) httpSubmit(w http.ResponseWriter, r *http.Request) error {
	if err := permit(r, wire.Muster_Submit_FullMethodName); err != nil {
		return err
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return muster.Errorf(muster.KindUsage, "the content type %q is not read here", r.Header.Get("Content-Type")).
			WithHint("Say Content-Type: application/json")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCommand))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return muster.Errorf(muster.KindInvalid, "the body is larger than %s", muster.Bytes(maxCommand)).WithHint("Submit the jobs in parts")
	}
	if err != nil {
		return muster.Errorf(muster.KindUsage, "the body can't be read: %v", err)
	}
	parsed, err := wire.ParseSubmitJSON(body)
	if err != nil {
		return err
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

// httpListJobs lists jobs of all users and states, newest first, unless the query says otherwise.
func (s *Server) httpListJobs(w http.ResponseWriter, r *http.Request) error {
	if err := permit(r, wire.Muster_ListJobs_FullMethodName); err != nil {
		return err
	}
	values, stale, err := parameters(r, "state", "queue", "user", "limit", "page_token")
	if err != nil {
		return err
	}
	q := &wire.ListJobsRequest{Stale: stale, User: "*", Queue: values.Get("queue"), Ended: true, PageToken: values.Get("page_token"), Waits: true}
	if user := values.Get("user"); user != "" {
		q.User = user
	}
	for _, list := range values["state"] {
		for _, state := range strings.Split(list, ",") {
			if _, known := muster.ParseJobPhase(state); !known {
				return muster.Errorf(muster.KindUsage, "%q is not the state of a job", state)
			}
			q.States = append(q.States, state)
		}
	}
	if limit := values.Get("limit"); limit != "" {
		if q.Limit, err = strconv.ParseInt(limit, 10, 32); err != nil || q.Limit < 1 {
			return muster.Errorf(muster.KindUsage, "limit %q is not a number of jobs", limit)
		}
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

func (s *Server) httpGetJob(w http.ResponseWriter, r *http.Request) error {
	if err := permit(r, wire.Muster_GetJob_FullMethodName); err != nil {
		return err
	}
	ref, err := jobParameter(r)
	if err != nil {
		return err
	}
	_, stale, err := parameters(r)
	if err != nil {
		return err
	}
	job, err := s.GetJob(r.Context(), &wire.GetJobRequest{Job: ref, Stale: stale, Spec: true, Waits: true})
	if err != nil {
		return err
	}
	write(w, http.StatusOK, wire.ItemsOf(wire.JobsJSON([]*wire.JobInfo{job})))
	return nil
}

func (s *Server) httpWhy(w http.ResponseWriter, r *http.Request) error {
	if err := permit(r, wire.Muster_Why_FullMethodName); err != nil {
		return err
	}
	ref, err := jobParameter(r)
	if err != nil {
		return err
	}
	_, stale, err := parameters(r)
	if err != nil {
		return err
	}
	why, err := s.Why(r.Context(), &wire.WhyRequest{Job: ref, Stale: stale})
	if err != nil {
		return err
	}
	write(w, http.StatusOK, wire.ItemsOf(wire.WhyJSONOf(why)))
	return nil
}

// httpCancel asks a job to stop; it answers with the job as it is then.
func (s *Server) httpCancel(w http.ResponseWriter, r *http.Request) error {
	if err := permit(r, wire.Muster_Cancel_FullMethodName); err != nil {
		return err
	}
	ref, err := jobParameter(r)
	if err != nil {
		return err
	}
	if _, err := s.Cancel(r.Context(), &wire.CancelRequest{Jobs: []*wire.JobRef{ref}}); err != nil {
		return err
	}
	job, err := s.GetJob(r.Context(), &wire.GetJobRequest{Job: ref, Stale: true})
	if err != nil {
		return err
	}
	write(w, http.StatusOK, wire.ItemsOf(wire.JobsJSON([]*wire.JobInfo{job})))
	return nil
}

func (s *Server) httpListNodes(w http.ResponseWriter, r *http.Request) error {
	nodes, err := s.httpNodes(r)
	if err != nil {
		return err
	}
	write(w, http.StatusOK, wire.ItemsOf(wire.NodesJSON(nodes)))
	return nil
}

func (s *Server) httpListGPUs(w http.ResponseWriter, r *http.Request) error {
	nodes, err := s.httpNodes(r)
	if err != nil {
		return err
	}
	write(w, http.StatusOK, wire.ItemsOf(wire.GPUsJSON(nodes)))
	return nil
}

func (s *Server) httpNodes(r *http.Request) ([]*wire.NodeInfo, error) {
	if err := permit(r, wire.Muster_ListNodes_FullMethodName); err != nil {
		return nil, err
	}
	_, stale, err := parameters(r)
	if err != nil {
		return nil, err
	}
	reply, err := s.ListNodes(r.Context(), &wire.ListNodesRequest{Stale: stale})
	return reply.GetNodes(), err
}

func (s *Server) httpListServers(w http.ResponseWriter, r *http.Request) error {
	if err := permit(r, wire.Muster_ListServers_FullMethodName); err != nil {
		return err
	}
	_, stale, err := parameters(r)
	if err != nil {
		return err
	}
	reply, err := s.ListServers(r.Context(), &wire.ListServersRequest{Stale: stale})
	if err != nil {
		return err
	}
	write(w, http.StatusOK, wire.ItemsOf(wire.ServersJSON(reply.Servers)))
	return nil
}
