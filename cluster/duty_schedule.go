package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/wire"
)

// planner is the scheduler's view in one term. Passes and explanations take turns: both work in the view.
type planner struct {
	mu      sync.Mutex
	view    *scheduler.View
	passed  bool // a pass was made
	signals scheduler.Signals
}

func newPlanner() *planner { return &planner{} }

// advance brings the view forward to s.
func (p *planner) advance(s *state.Snapshot, changed state.Changed, everything bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.view == nil || everything {
		p.view = scheduler.NewView(s)
		return
	}
	p.view.Advance(s, changed)
}

func (p *planner) pass(signals scheduler.Signals, now muster.Time) scheduler.Plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passed, p.signals = true, signals
	return scheduler.Schedule(p.view, signals, now)
}

// explain answers of the newest pass; made is false before the first.
func (p *planner) explain(job muster.JobID, now muster.Time) (why scheduler.Explained, known, made bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.passed {
		return why, false, false
	}
	why, known = p.view.Explain(job, p.signals, now)
	return why, known, true
}

// schedule plans whenever something changed, and proposes what it decided. While a plan is on its way changes gather; what
// the state refused is decided again from the state that refused it.
func (l *leadership) schedule(ctx context.Context) error {
	feed, snapshot := l.server.hub.subscribe()
	defer feed.close()
	defer l.planLines.flush()
	l.planner.advance(snapshot, state.Changed{}, true)
	for disagreed := 0; ; {
		done, err := l.plan(ctx)
		if err != nil {
			return err
		}
		if disagreed++; done.taken {
			disagreed = 0
		}
		if disagreed > 1 { // not once, from a change meanwhile: the refusal itself would wake the next pass, for ever
			l.server.logger.Warn("the state takes nothing of what was decided; the next pass waits", "passes", disagreed)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(disagreement):
			}
		} else if !done.more {
			select {
			case <-ctx.Done():
				return nil
			case <-feed.wake:
			case <-l.suspicion:
			case <-done.wake:
			}
		}
		l.planner.advance(feed.take())
	}
}

// disagreement is how long passes rest while the state refuses whole plans one after the other.
const disagreement = time.Second

// passed is what came of a pass.
type passed struct {
	more  bool             // the plan was full
	taken bool             // something of it was, or there was nothing to take
	wake  <-chan time.Time // when the next pass is worth while though nothing changes; nil: never
}

// plan makes one pass and commits it.
func (l *leadership) plan(ctx context.Context) (done passed, err error) {
	signals := scheduler.Signals{Suspect: l.leases.Silent(), Load: l.leases.Loads()}
	began := time.Now()
	now := muster.TimeOf(l.server.config.Clock.Wall())
	plan := l.planner.pass(signals, now)
	l.server.metrics.passed(plan.Gangs, time.Since(began))
	if plan.Wake > now {
		done.wake = time.After(plan.Wake.Sub(now))
	}
	if plan.Empty() {
		done.taken = true
		return done, nil
	}
	out := l.propose(ctx, plan.Command(l.term))[0]
	switch {
	case out.err != nil:
		return done, out.err
	case out.result.Err != nil:
		return done, out.result.Err
	}
	for _, r := range out.result.Refused {
		l.server.logger.Debug("the state refused a placement", "job", r.Job, "reason", r.Reason)
	}
	l.server.metrics.refused(len(out.result.Refused))
	l.planLines.say(time.Now(), hclog.Info, "plan committed", []any{"gangs", len(plan.Gangs), "evictions", len(plan.Evictions), "refused", len(out.result.Refused),
		"index", uint64(out.index), "term", l.term})
	done.more = plan.More
	done.taken = len(out.result.Refused) == 0 || len(out.result.Refused) < len(plan.Gangs)+len(plan.Evictions)
	return done, nil
}

// Explain answers why at the leader, of the newest pass.
func (s *Server) Explain(ctx context.Context, job muster.JobID) (*wire.WhyReply, error) {
	l, err := s.leading(ctx)
	if err != nil {
		return nil, err
	}
	reader := s.Read()
	info, known := reader.Job(job, true, false)
	if !known {
		return nil, muster.Errorf(muster.KindNotFound, "no job %v", job)
	}
	reply := &wire.WhyReply{Job: info}
	why, known, made := l.planner.explain(job, muster.TimeOf(s.config.Clock.Wall()))
	if !made || !known {
		reply.Note = "the leader has not looked at this job yet; ask again in a moment"
		return reply, nil
	}
	reply.Position, reply.Of = int64(why.Position), int64(why.Of)
	reply.Headline, reply.Note, reply.AheadCount = why.Headline, why.Note, int64(why.AheadCount)
	snapshot := s.hub.newest().snapshot
	for _, id := range why.Ahead {
		ref := &wire.JobRef{Id: uint64(id)}
		if row, ok := snapshot.Job(id); ok {
			ref.Name = row.Name
		}
		reply.Ahead = append(reply.Ahead, ref)
	}
	for _, r := range why.Reasons {
		reply.Reasons = append(reply.Reasons, &wire.WhyReason{Kind: r.Kind, Never: r.Never, Count: int64(r.Count), Nodes: r.Nodes, Detail: r.Detail})
	}
	return reply, nil
}

// nameCluster gives a new cluster its name.
func (l *leadership) nameCluster(ctx context.Context) error {
	name := l.server.config.ClusterID
	switch is := l.server.hub.newest().snapshot.Cluster().ID; is {
	case name:
		return nil
	case "":
		return l.proposeOne(ctx, &state.InitCluster{ClusterID: name})
	default:
		l.server.config.Fatal(fmt.Errorf("this server was told to belong to cluster %q, but its state is of cluster %q", name, is))
		return nil
	}
}
