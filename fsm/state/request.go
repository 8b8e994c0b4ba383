package state

import "github.com/musterhpc/muster"

// expiryBatch bounds how many request ids an entry forgets, beyond two for each of its commands: more than it can add.
const expiryBatch = 64

// request is a command of a client, remembered by its id.
type request interface {
	Command
	header() *Header
	content(s *State, e *encoder) // all but the id, in the canonical encoding
}

// MayBeAsked says whether a command is one that clients or workers ask for; what else there is the leader decides itself.
func MayBeAsked(c Command) bool {
	switch c.(type) {
	case *RegisterNode, *ReportAllocs:
		return true
	}
	_, ok := c.(request)
	return ok
}

func (h *Header) header() *Header { return h }

// requestContent is a hash of what a request asks for.
func (s *State) requestContent(r request) [16]byte {
	if submit, ok := r.(*Submit); ok {
		s.prepare(submit) // uses the encoder itself
	}
	return s.w.enc.content(func(e *encoder) {
		e.str(r.header().User)
		r.content(s, e)
	})
}

// recall gives the answer to an earlier request of the same id.
func (s *State) recall(id string, content [16]byte) (Result, bool) {
	row := s.t.requests.get(id)
	if row == nil || row.Expires <= s.now() {
		return Result{}, false
	}
	if row.Content != content {
		return Result{Err: muster.Errorf(muster.KindConflict, "request id %q was already used for another request", id).
			WithHint("Give each request an id of its own; only a retry repeats it")}, true
	}
	result := row.Result
	result.Replay = true
	return result, true
}

func (s *State) remember(id string, content [16]byte, result Result) {
	if old := s.t.requests.get(id); old != nil {
		s.forgetRequest(expiryKey{old.Expires, id})
	}
	row := RequestRow{ID: id, Content: content, Result: result, Expires: s.now().Add(RequestRetention)}
	s.t.requests.insert(id, row, &s.w)
	s.expiry.add(expiryKey{row.Expires, id})
}

// forget drops requests whose time is over, the oldest first, at most limit.
func (s *State) forget(limit int) {
	var due []expiryKey
	for k := range s.expiry.all() {
		if k.expires > s.now() || len(due) == limit {
			break
		}
		due = append(due, k)
	}
	for _, k := range due {
		s.forgetRequest(k)
	}
}

func (s *State) forgetRequest(k expiryKey) {
	s.expiry.drop(k)
	s.t.requests.remove(k.request, &s.w)
}

func (c *Submit) content(s *State, e *encoder) {
	e.str("submit")
	e.flag(c.Pend)
	e.str(c.Name)
	e.uint(uint64(len(s.prepared.specs)))
	for i := range s.prepared.specs {
		e.fixed(s.prepared.specs[i].asked[:])
	}
	if c.Hold || c.StartWithin != 0 {
		e.flag(c.Hold)
		e.int(int64(c.StartWithin))
	}
}

func (c *Cancel) content(_ *State, e *encoder) {
	e.str("cancel")
	e.uint(uint64(c.Mode))
	e.jobs(c.Jobs)
}

func (c *Release) content(_ *State, e *encoder) {
	e.str("release")
	e.jobs(c.Jobs)
}

func (c *Hold) content(_ *State, e *encoder) {
	e.str("hold")
	e.jobs(c.Jobs)
}

func (c *SetPriority) content(_ *State, e *encoder) {
	e.str("priority")
	e.jobs(c.Jobs)
	e.int(int64(c.Priority))
}

func (c *Requeue) content(_ *State, e *encoder) {
	e.str("requeue")
	e.jobs(c.Jobs)
}

func (c *RemoveNodes) content(_ *State, e *encoder) {
	e.str("remove nodes")
	e.strs(c.Nodes)
}

func (c *LabelNode) content(_ *State, e *encoder) {
	e.str("label node")
	e.str(c.Node)
	e.labels(c.Set)
	e.strs(c.Remove)
}

func (c *DrainNodes) content(_ *State, e *encoder) {
	e.str("drain")
	e.strs(c.Nodes)
	e.str(c.Reason)
	e.flag(c.HasDeadline)
	e.int(int64(c.Deadline))
}

func (c *UndrainNodes) content(_ *State, e *encoder) {
	e.str("undrain")
	e.strs(c.Nodes)
}

func (c *FenceNode) content(_ *State, e *encoder) {
	e.str("fence")
	e.str(c.Node)
}

func (c *ApplyQueues) content(_ *State, e *encoder) {
	e.str("queues")
	e.uint(uint64(len(c.Queues)))
	for i := range c.Queues {
		writeQueueSpec(e, &c.Queues[i])
	}
	writePolicy(e, &c.Policy)
}

func (e *encoder) jobs(list []muster.JobID) {
	e.uint(uint64(len(list)))
	for _, id := range list {
		e.uint(uint64(id))
	}
}
