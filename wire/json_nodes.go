package wire

import (
	"time"

	"github.com/musterhpc/muster"
)

// NodeJSON is a node.
type NodeJSON struct {
	ID      uint32            `json:"id"`
	Name    string            `json:"name"`
	State   string            `json:"state"` // ready, draining, drained, suspect, lost
	Reason  string            `json:"reason"`
	Address string            `json:"address"`
	IP      string            `json:"ip"`
	Labels  map[string]string `json:"labels"`
	Set     []string          `json:"set_labels,omitempty"` // keys of those that were set over the agent's file
	Cores   float64           `json:"cores"`
	Memory  string            `json:"memory"`
	Free    FreeJSON          `json:"free"`
	Fencing string            `json:"fencing"` // strong, or weak: with the reason
	Version string            `json:"version"`
	Drain   *DrainJSON        `json:"drain,omitempty"`
	GPUs    []GPUJSON         `json:"gpus"`
	Jobs    []NodeJobJSON     `json:"jobs"`
}

// FreeJSON is what no job holds.
type FreeJSON struct {
	GPUs   int     `json:"gpus"`
	Cores  float64 `json:"cores"`
	Memory string  `json:"memory"`
}

// DrainJSON says since when, and why, nothing new starts.
type DrainJSON struct {
	Reason   string     `json:"reason"`
	By       string     `json:"by"`
	Since    *time.Time `json:"since"`
	Deadline *time.Time `json:"deadline"` // null: what runs ends by itself
}

// GPUJSON is a GPU.
type GPUJSON struct {
	UUID   string  `json:"uuid"`
	Node   string  `json:"node"`
	Index  int     `json:"index"`
	Model  string  `json:"model"`
	Memory string  `json:"memory"`
	Health string  `json:"health"` // healthy, degraded, quarantined, lost
	Reason string  `json:"reason"`
	Job    *uint64 `json:"job"` // that holds it
}

// NodeJobJSON is one rank that runs on a node.
type NodeJobJSON struct {
	ID    uint64 `json:"id"`
	Name  string `json:"name"`
	User  string `json:"user"`
	Rank  int64  `json:"rank"`
	State string `json:"state"`
	GPUs  []int  `json:"gpus"` // indices
}

// NodesJSON gives nodes' JSON form.
func NodesJSON(nodes []*NodeInfo) []NodeJSON {
	out := make([]NodeJSON, len(nodes))
	for i, info := range nodes {
		n := info.GetNode()
		out[i] = NodeJSON{
			ID:      n.GetId(),
			Name:    n.GetName(),
			State:   info.GetState(),
			Reason:  info.GetReason(),
			Address: n.GetAddress(),
			IP:      n.GetIp(),
			Labels:  map[string]string{},
			Cores:   cores(n.GetMilliCores()),
			Memory:  muster.Bytes(n.GetMemory()).String(),
			Free: FreeJSON{
				GPUs:   muster.SlotSet(n.GetFreeSlots()).Count(),
				Cores:  cores(max(n.GetFreeMilliCores(), 0)),
				Memory: muster.Bytes(max(n.GetFreeMemory(), 0)).String(),
			},
			Fencing: n.GetFencing(),
			Version: n.GetVersion(),
			GPUs:    GPUsJSON(nodes[i : i+1]),
			Jobs:    []NodeJobJSON{},
		}
		for _, l := range n.GetLabels() {
			out[i].Labels[l.GetKey()] = l.GetValue()
		}
		for _, l := range n.GetSetLabels() {
			out[i].Set = append(out[i].Set, l.GetKey())
		}
		if d := n.GetDrain(); d.GetOn() {
			out[i].Drain = &DrainJSON{Reason: d.GetReason(), By: d.GetBy(), Since: moment(d.GetSince()), Deadline: moment(d.GetDeadline())}
		}
		for _, j := range info.GetJobs() {
			out[i].Jobs = append(out[i].Jobs, NodeJobJSON{
				ID: j.GetJob(), Name: j.GetName(), User: j.GetUser(), Rank: j.GetRank(), State: j.GetState(),
				GPUs: muster.SlotSet(j.GetSlots()).Slots(),
			})
		}
	}
	return out
}

// GPUsJSON gives the JSON form of all GPUs of nodes.
func GPUsJSON(nodes []*NodeInfo) []GPUJSON {
	out := []GPUJSON{}
	for _, info := range nodes {
		owners := map[int]uint64{}
		for _, j := range info.GetJobs() {
			for _, slot := range muster.SlotSet(j.GetSlots()).Slots() {
				owners[slot] = j.GetJob()
			}
		}
		for slot, g := range info.GetNode().GetGpus() {
			gpu := GPUJSON{
				UUID:   g.GetUuid(),
				Node:   info.GetNode().GetName(),
				Index:  slot,
				Model:  g.GetModel(),
				Memory: muster.Bytes(g.GetMemory()).String(),
				Health: muster.GPUHealth(min(g.GetHealth(), 255)).String(),
				Reason: g.GetReason(),
			}
			if job, held := owners[slot]; held {
				gpu.Job = &job
			}
			out = append(out, gpu)
		}
	}
	return out
}

// ServerJSON is a server, as it answers for itself.
type ServerJSON struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Address string `json:"address"`
	HTTP    string `json:"http"`
	Leader  bool   `json:"leader"`
	Term    uint64 `json:"term"`
	Applied uint64 `json:"applied_index"`
	Digest  string `json:"digest"` // at applied_index
	Voter   bool   `json:"voter"`
	Version string `json:"version"`
	Error   string `json:"error,omitempty"` // it does not answer, and why
}

// ServersJSON gives servers' JSON form.
func ServersJSON(servers []*ServerInfo) []ServerJSON {
	out := make([]ServerJSON, len(servers))
	for i, s := range servers {
		out[i] = ServerJSON{
			ID: s.GetId(), Name: s.GetName(), Address: s.GetAddress(), HTTP: s.GetHttp(), Leader: s.GetLeader(), Term: s.GetTerm(),
			Applied: s.GetAppliedIndex(), Digest: s.GetDigest(), Voter: s.GetVoter(), Version: s.GetVersion(), Error: s.GetError(),
		}
	}
	return out
}

// WhyJSON explains one job.
type WhyJSON struct {
	Job        JobJSON         `json:"job"`
	Position   int64           `json:"position"` // in its queue's order; 0 = not pending
	Of         int64           `json:"of"`
	Headline   string          `json:"headline"`
	Reasons    []WhyReasonJSON `json:"reasons"`
	Ahead      []JobRefJSON    `json:"ahead"` // nearest first, at most 5
	AheadCount int64           `json:"ahead_count"`
	Note       string          `json:"note"`
}

// WhyReasonJSON is one reason why nodes do not do.
type WhyReasonJSON struct {
	Kind   string   `json:"kind"`
	Never  bool     `json:"never"` // apart from "not now"
	Count  int64    `json:"count"`
	Nodes  []string `json:"nodes"` // at most 16
	Detail string   `json:"detail"`
}

// JobRefJSON names a job.
type JobRefJSON struct {
	ID   uint64 `json:"id"`
	Name string `json:"name"`
}

// WhyJSONOf gives an explanation's JSON form, a list of one.
func WhyJSONOf(why *WhyReply) []WhyJSON {
	out := WhyJSON{
		Job:        jobJSONOf(why.GetJob()),
		Position:   why.GetPosition(),
		Of:         why.GetOf(),
		Headline:   why.GetHeadline(),
		Reasons:    []WhyReasonJSON{},
		Ahead:      []JobRefJSON{},
		AheadCount: why.GetAheadCount(),
		Note:       why.GetNote(),
	}
	for _, r := range why.GetReasons() {
		out.Reasons = append(out.Reasons, WhyReasonJSON{Kind: r.GetKind(), Never: r.GetNever(), Count: r.GetCount(),
			Nodes: append([]string{}, r.GetNodes()...), Detail: r.GetDetail()})
	}
	for _, ref := range why.GetAhead() {
		out.Ahead = append(out.Ahead, JobRefJSON{ID: ref.GetId(), Name: ref.GetName()})
	}
	return []WhyJSON{out}
}

// SubmittedJSON is a job that was just made.
type SubmittedJSON struct {
	ID   uint64 `json:"id"`
	Name string `json:"name"`
}

// ErrorJSON is a refusal: of the HTTP API, and of -o json on stderr.
type ErrorJSON struct {
	Error ErrorBodyJSON `json:"error"`
}

// ErrorBodyJSON says what, and what to do.
type ErrorBodyJSON struct {
	Code        string           `json:"code"` // error, usage, invalid, denied, not_found, conflict, unavailable, infeasible
	Message     string           `json:"message"`
	Hint        string           `json:"hint"`
	Field       string           `json:"field,omitempty"` // path into what was sent
	Diagnostics []DiagnosticJSON `json:"diagnostics,omitempty"`
}

// DiagnosticJSON is a mistake in a file.
type DiagnosticJSON struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Summary string `json:"summary"`
	Detail  string `json:"detail"`
}

// ErrorJSONOf gives an error's JSON form; any error has one.
func ErrorJSONOf(err error, diagnostics ...DiagnosticJSON) ErrorJSON {
	x := ErrorOf(err)
	return ErrorJSON{Error: ErrorBodyJSON{Code: x.GetKind(), Message: x.GetMessage(), Hint: x.GetHint(), Field: x.GetField(),
		Diagnostics: diagnostics}}
}
