package simulation

import (
	"fmt"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/wire"
)

// clients are people at the command line: each request is tried again, with its id, until it is answered.
type clients struct {
	*proc
	w        *world
	requests int
	jobs     []*clientJob
}

type clientJob struct {
	plan  *JobPlan
	acked bool
	id    muster.JobID
}

func newClients(w *world) *clients {
	h := w.newHost("client", w.plan.Servers+w.plan.Machines, 1)
	c := &clients{proc: &proc{host: h, name: h.name}, w: w}
	c.begin()
	return c
}

func (c *clients) start() {
	for i := range c.w.plan.Jobs {
		job := &clientJob{plan: &c.w.plan.Jobs[i]}
		c.jobs = append(c.jobs, job)
		c.at(job.plan.At, func() { c.submit(job) })
	}
}

// request asks one server after the other until one answers.
func (c *clients) request(make func(state.Header) state.Command, done func(state.Result)) {
	c.requests++
	command := wire.CommandOf(make(state.Header{RequestID: fmt.Sprint("request-", c.requests), User: "ann"}))
	at := c.host.rand.IntN(len(c.w.servers))
	over := false
	var try func()
	try = func() {
		s := c.w.servers[at%len(c.w.servers)]
		at++
		c.w.net.call(c.proc, s.proc, 7*time.Second, func(reply func(any, error)) {
			s.commitCommand(command, func(r committedReply, err error) { reply(r, err) })
		}, func(answer any, err error) {
			if over {
				return
			}
			if err != nil {
				c.after(between(c.host.rand, 10*time.Millisecond, 200*time.Millisecond), try)
				return
			}
			over = true
			done(answer.(committedReply).result)
		})
	}
	try()
}

func (c *clients) submit(job *clientJob) {
	spec := job.plan.spec()
	c.w.say("client", "submits %s", job.plan.describe())
	c.request(func(h state.Header) state.Command {
		return &state.Submit{Header: h, Specs: []*muster.JobSpec{spec}, Pend: true}
	}, func(r state.Result) {
		if r.Err != nil || len(r.Jobs) != 1 {
			c.w.judge.fail("durable", "submission %s was refused: %v", job.plan.Name, r.Err)
			return
		}
		job.acked, job.id = true, r.Jobs[0]
		c.w.counts.Submitted++
		c.w.say("client", "%s is job %d", job.plan.Name, job.id)
		if job.plan.CancelAfter > 0 {
			c.after(job.plan.CancelAfter, func() { c.cancel(job) })
		}
	})
}

func (c *clients) cancel(job *clientJob) {
	c.w.say("client", "cancels job %d", job.id)
	c.request(func(h state.Header) state.Command {
		return &state.Cancel{Header: h, Jobs: []muster.JobID{job.id}, Mode: job.plan.CancelMode}
	}, func(r state.Result) {
		if r.Err == nil {
			c.w.counts.Cancelled++
			c.w.say("client", "the cancel of job %d is acknowledged", job.id)
			c.w.judge.cancelled(job.plan, job.id)
		}
	})
}

// drain drains a node, and takes that back after a while.
func (c *clients) drain(node string, after time.Duration) {
	c.request(func(h state.Header) state.Command {
		return &state.DrainNodes{Header: h, Nodes: []string{node}, Reason: "repair", HasDeadline: true, Deadline: after / 2}
	}, func(state.Result) {
		c.after(after, func() {
			c.request(func(h state.Header) state.Command { return &state.UndrainNodes{Header: h, Nodes: []string{node}} }, func(state.Result) {})
		})
	})
}

// fenceOff says that a machine is off, and leaves it off until that is answered.
func (c *clients) fenceOff(m *machine) {
	m.fencing = true
	c.request(func(h state.Header) state.Command { return &state.FenceNode{Header: h, Node: m.name} }, func(state.Result) {
		m.fencing = false
		if !m.up {
			c.w.say(m.name, "boots")
			m.start()
		}
	})
}

// release lets held jobs go on.
func (c *clients) release() {
	s := c.w.servers[0]
	for job := range s.snapshot().Jobs(0) {
		if job.Phase == muster.JobHeld {
			id := job.ID
			c.request(func(h state.Header) state.Command { return &state.Release{Header: h, Jobs: []muster.JobID{id}} }, func(state.Result) {})
		}
	}
}
