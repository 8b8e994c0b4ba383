package rpc

import (
	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// Parameters that several operations share.
var (
	consistency = parameter{name: "consistency", doc: "stale: answered from this server's own state, however old", words: []string{"default", "stale"}}
	following   = parameter{name: "follow", doc: "true: go on as more comes", words: []string{"true", "false"}}
)

func read(more ...parameter) []parameter { return append(more, consistency) }

// routes is the whole HTTP API by path, as the patterns of http.ServeMux have it.
func (s *Server) routes() map[string]methods {
	r := map[string]methods{
		"/livez":  {"GET": {summary: "answers while the process lives", handle: s.httpLive}},
		"/readyz": {"GET": {summary: "answers while a leader confirms itself and this server is as new", handle: s.httpReady}},
		"/v1/openapi.json": {"GET": {summary: "this description", gives: openAPI{},
			handle: s.httpOpenAPI}},
		"/v1/jobs": {
			"GET": {summary: "jobs of everybody and every state, newest first, a page at a time",
				method: wire.Muster_ListJobs_FullMethodName, gives: wire.ItemsJSON[wire.JobJSON]{}, handle: s.httpListJobs,
				query: read(
					parameter{name: "state", doc: "only jobs in one of these states", words: jobStates(), many: true},
					parameter{name: "queue", doc: "only jobs of this queue"},
					parameter{name: "user", doc: "only this user's jobs"},
					parameter{name: "limit", doc: "at most so many; 1000 when left out, never more than 10000", number: true},
					parameter{name: "page_token", doc: "the next_page_token of the page before"})},
			"POST": {summary: "make jobs, all or none: from specs, or from a job file",
				method: wire.Muster_Submit_FullMethodName, takes: wire.SubmitBodyJSON{}, gives: wire.ItemsJSON[wire.SubmittedJSON]{},
				handle: s.httpSubmit},
		},
		"/v1/jobs/{id}": {"GET": {summary: "one job with its spec, attempts and ranks",
			method: wire.Muster_GetJob_FullMethodName, gives: wire.ItemsJSON[wire.JobJSON]{}, handle: s.httpGetJob, query: read()}},
		"/v1/jobs/{id}/why": {"GET": {summary: "why a job waits, or ended as it did",
			method: wire.Muster_Why_FullMethodName, gives: wire.ItemsJSON[wire.WhyJSON]{}, handle: s.httpWhy, query: read()}},
		"/v1/jobs/{id}/logs": {"GET": {summary: "what a job's ranks have printed: text, [rank@node] before a line when there are several; or an object a line",
			method: wire.Muster_Logs_FullMethodName, gives: wire.LogLineJSON{}, lines: true, texts: true, handle: s.httpLogs,
			query: read(
				parameter{name: "rank", doc: "numbers, all, or failed; all when left out", many: true},
				parameter{name: "attempt", doc: "of this attempt; all when left out", number: true},
				parameter{name: "lines", doc: "only the last so many lines of each rank", number: true},
				parameter{name: "stream", doc: "only this one", words: []string{"stdout", "stderr"}},
				parameter{name: "format", doc: "text when left out", words: []string{"text", "jsonl"}},
				following)}},
		"/v1/jobs/{id}:cancel": {"POST": {summary: "ask a job to stop; the answer is the job as it is then",
			method: wire.Muster_Cancel_FullMethodName, takes: wire.CancelBodyJSON{}, gives: wire.ItemsJSON[wire.JobJSON]{}, handle: s.httpCancel}},
		"/v1/nodes": {"GET": {summary: "nodes by name", method: wire.Muster_ListNodes_FullMethodName,
			gives: wire.ItemsJSON[wire.NodeJSON]{}, handle: s.httpListNodes, query: read()}},
		"/v1/gpus": {"GET": {summary: "GPUs by node and slot", method: wire.Muster_ListNodes_FullMethodName,
			gives: wire.ItemsJSON[wire.GPUJSON]{}, handle: s.httpListGPUs, query: read()}},
		"/v1/queues": {"GET": {summary: "queues by name, with who holds what there", method: wire.Muster_ListQueues_FullMethodName,
			gives: wire.ItemsJSON[wire.QueueJSON]{}, handle: s.httpListQueues, query: read()}},
		"/v1/servers": {"GET": {summary: "servers, each as it answers for itself", method: wire.Muster_ListServers_FullMethodName,
			gives: wire.ItemsJSON[wire.ServerJSON]{}, handle: s.httpListServers, query: read()}},
	}
	r["/v1/events"] = methods{"GET": {summary: "what happened, the oldest first, one object a line",
		method: wire.Muster_Events_FullMethodName, gives: wire.EventJSON{}, lines: true, handle: s.httpEvents,
		query: read(
			parameter{name: "object", doc: "only of this job, by number, or of this node"},
			parameter{name: "since", doc: "only since then: RFC 3339"},
			parameter{name: "after", doc: "only behind this event: its index, a point, its nth; how a client goes on where it was"},
			following)}}
	if s.scrape != nil {
		r["/metrics"] = methods{"GET": {summary: "measurements in Prometheus' text format", handle: s.httpMetrics}}
	}
	return r
}

// jobStates are the words for a job's state.
func jobStates() []string {
	var words []string
	for p := muster.JobHeld; p <= muster.JobCancelled; p++ {
		words = append(words, p.String())
	}
	return words
}
