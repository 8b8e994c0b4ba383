//go:build chaos

package chaos

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/test/chaos/check"
	"github.com/musterhpc/muster/wire"
)

// client is one user: what it reads never goes back. It does one thing after the other, and writes down each call.
type client struct {
	name    string
	session string
	rpc     *rpc.Client
	random  *mathrand.Rand
	out     *check.Recorder
	world   *World
	jobs    *jobList
	number  int
}

// jobList is the jobs that clients know of.
type jobList struct {
	mu   sync.Mutex
	ids  []muster.JobID
	live map[muster.JobID]bool          // not seen to have ended yet
	over map[muster.JobID]check.Instant // when it was first seen to have ended, or to be held
}

func (l *jobList) add(ids ...muster.JobID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.ids = append(l.ids, id)
		l.live[id] = true
	}
}

func (l *jobList) ended(id muster.JobID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.live, id)
	if l.over[id] == 0 {
		l.over[id] = now()
	}
}

func (l *jobList) hasEnded(id muster.JobID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over[id] != 0
}

// recent draws one of the newest jobs.
func (l *jobList) recent(r *mathrand.Rand) (muster.JobID, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ids) == 0 {
		return 0, false
	}
	newest := l.ids[max(0, len(l.ids)-30):]
	return newest[r.IntN(len(newest))], true
}

func (l *jobList) living() map[muster.JobID]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.live)
}

func (l *jobList) alive() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.live)
}

func (w *World) newClient(number int, seed uint64, out *check.Recorder, jobs *jobList) (*client, error) {
	var addresses []string
	for i := range w.Servers { // each prefers another one
		addresses = append(addresses, w.RPC(w.Servers[(i+number)%len(w.Servers)]))
	}
	c, err := rpc.Dial(addresses, rpc.Options{Dial: w.dial})
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("c%d", number)
	return &client{name: name, session: name, rpc: c, random: mathrand.New(mathrand.NewPCG(seed, uint64(100+number))), out: out, world: w, jobs: jobs}, nil
}

// mostLive is how many jobs may live before clients submit less: what can't run has to end in time after the last fault.
const mostLive = 40

// work does what a user does, until ctx ends.
func (c *client) work(ctx context.Context) {
	for ctx.Err() == nil {
		// A call that was begun is finished: what it did is known then.
		switch n := c.random.IntN(10); {
		case n < 4 && c.jobs.alive() < mostLive:
			c.submit()
		case n < 5:
			if id, ok := c.jobs.recent(c.random); ok {
				c.cancel(id)
			}
		case n < 8:
			if id, ok := c.jobs.recent(c.random); ok {
				c.get(id, c.random.IntN(3) == 0)
			}
		default:
			c.list(c.random.IntN(2) == 0)
		}
		pause := time.NewTimer(time.Duration(200+c.random.IntN(600)) * time.Millisecond)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

func (c *client) begin(op check.Op) *check.Call {
	return &check.Call{Client: c.name, Session: c.session, Op: op, Start: now()}
}

// done writes a call down. What is certain to have done nothing is told by the kind of error.
func (c *client) done(call *check.Call, err error) {
	call.End, call.Outcome = now(), check.OK
	if err != nil {
		call.Outcome, call.Error = check.Unknown, err.Error()
		var e *muster.Error
		refusals := []muster.Kind{muster.KindUsage, muster.KindInvalid, muster.KindDenied, muster.KindNotFound, muster.KindConflict, muster.KindInfeasible}
		if errors.As(err, &e) && slices.Contains(refusals, e.Kind) {
			call.Outcome, call.Refusal = check.Refused, e.Kind
		}
	}
	c.out.Add(check.Record{Call: call})
}

func (c *client) submit() (*check.Call, error) {
	c.number++
	name := fmt.Sprintf("%s-%d", c.name, c.number)
	return c.submitJob(aJob(c.random, name, c.world.evidence()))
}

func (c *client) submitJob(spec *muster.JobSpec) (*check.Call, error) {
	call := c.begin(check.OpSubmit)
	call.Request, call.Names = rand.Text(), []string{spec.Name}
	reply, err := c.rpc.Submit(context.Background(), submission(call.Request, spec))
	for _, id := range reply.GetIds() {
		call.Jobs = append(call.Jobs, muster.JobID(id))
	}
	c.jobs.add(call.Jobs...)
	c.done(call, err)
	return call, err
}

func (c *client) cancel(id muster.JobID) {
	call := c.begin(check.OpCancel)
	call.Request, call.Jobs = rand.Text(), []muster.JobID{id}
	_, err := c.rpc.Cancel(context.Background(), &wire.CancelRequest{RequestId: call.Request, Jobs: []*wire.JobRef{{Id: uint64(id)}}})
	c.done(call, err)
}

func (c *client) get(id muster.JobID, stale bool) {
	call := c.begin(check.OpGet)
	call.Jobs, call.Stale = []muster.JobID{id}, stale
	info, err := c.rpc.GetJob(context.Background(), &wire.GetJobRequest{Job: &wire.JobRef{Id: uint64(id)}, Stale: stale})
	if err == nil {
		call.Version, call.Seen = version(info.Version), []check.Seen{c.seen(info)}
	}
	c.done(call, err)
}

// list lists the live jobs of all.
func (c *client) list(stale bool) {
	known := c.jobs.living()
	call := c.begin(check.OpList)
	call.Stale = stale
	reply, err := c.rpc.ListJobs(context.Background(), &wire.ListJobsRequest{User: "*", Stale: stale, Limit: 10_000})
	if err == nil {
		call.Version = version(reply.Version)
		for _, info := range reply.Jobs {
			call.Seen = append(call.Seen, c.seen(info))
			delete(known, muster.JobID(info.Id))
		}
		for id := range known {
			if !stale { // it lives no more: else it would be listed
				c.jobs.ended(id)
			}
		}
	}
	c.done(call, err)
}

// all lists every job, with a linearizable read.
func (c *client) all() ([]*wire.JobInfo, error) {
	call := c.begin(check.OpList)
	call.Complete = true
	reply, err := c.rpc.ListJobs(context.Background(), &wire.ListJobsRequest{User: "*", Ended: true, Limit: 10_000})
	if err == nil {
		call.Version, call.Complete = version(reply.Version), reply.NextPageToken == ""
		for _, info := range reply.Jobs {
			call.Seen = append(call.Seen, c.seen(info))
		}
	}
	c.done(call, err)
	return reply.GetJobs(), err
}

type jobInfo = wire.JobInfo

func version(v *wire.Version) muster.Version {
	return muster.Version{Epoch: muster.Epoch(v.GetEpoch()), Index: muster.Index(v.GetIndex())}
}

// seen is a job as it was shown; that it has ended is remembered.
func (c *client) seen(info *wire.JobInfo) check.Seen {
	s := check.Seen{
		Job: muster.JobID(info.Id), Name: info.Name, State: info.State, Attempt: info.Attempt, Class: info.Class,
		ExitCode: code(info.HasExitCode, info.ExitCode), Count: int(info.RankCount), Ranks: ranks(info.Ranks),
	}
	if phase, _ := muster.ParseJobPhase(info.State); phase.Terminal() || phase == muster.JobHeld {
		c.jobs.ended(s.Job)
	}
	return s
}

func code(known bool, code int64) *int {
	if !known {
		return nil
	}
	n := int(code)
	return &n
}

func ranks(infos []*wire.RankInfo) []check.Rank {
	var out []check.Rank
	for _, r := range infos {
		rank := check.Rank{
			Alloc: muster.AllocID{Epoch: muster.Epoch(r.GetAlloc().GetEpoch()), Counter: r.GetAlloc().GetCounter()}.String(),
			Group: r.Group, Rank: int(r.Rank), Attempt: r.Attempt, Node: r.Node, State: r.State, Class: r.Class,
			ExitCode: code(r.HasExitCode, r.ExitCode), Signal: int(r.Signal),
		}
		for _, i := range r.GpuIndices {
			rank.Slots = append(rank.Slots, int(i))
		}
		out = append(out, rank)
	}
	return out
}

// final is everything that is known of all jobs.
func (c *client) final() (check.Final, error) {
	var f check.Final
	infos, err := c.all()
	if err != nil {
		return f, err
	}
	for _, short := range infos {
		info, err := c.rpc.GetJob(context.Background(), &wire.GetJobRequest{Job: &wire.JobRef{Id: short.Id}})
		if err != nil {
			return f, fmt.Errorf("job %d: %w", short.Id, err)
		}
		j := check.Job{
			ID: muster.JobID(info.Id), Name: info.Name, State: info.State, Class: info.Class, Reason: info.Reason,
			ExitCode: code(info.HasExitCode, info.ExitCode), Attempt: info.Attempt, Count: int(info.RankCount), Lease: lease,
			Ended: c.jobs.over[muster.JobID(info.Id)], Ranks: append(ranks(info.EarlierRanks), ranks(info.Ranks)...),
		}
		for _, a := range info.Attempts {
			j.Attempts = append(j.Attempts, check.Attempt{Number: a.Number, Class: className(a), ExitCode: int(a.ExitCode), Reason: a.Reason})
		}
		f.Jobs = append(f.Jobs, j)
	}
	nodes, err := c.rpc.ListNodes(context.Background(), &wire.ListNodesRequest{})
	if err != nil {
		return f, err
	}
	for _, n := range nodes.Nodes {
		f.Nodes = append(f.Nodes, n.Node.GetName()+" "+n.State)
	}
	f.Time = now()
	return f, nil
}

func className(a *wire.Attempt) string { return muster.Class(a.Class).String() }
