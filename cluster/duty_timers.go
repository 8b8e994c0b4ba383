package cluster

import (
	"context"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// every runs f at each tick until the term ends or f fails.
func (l *leadership) every(ctx context.Context, tick time.Duration, f func(context.Context) error) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := f(ctx); err != nil {
			return err
		}
	}
}

// backoffKey is one delay of a job: a later attempt's is another one.
type backoffKey struct {
	job     muster.JobID
	attempt uint32
}

// backoffs measures delays on a monotonic clock, from when this leader first saw them; a new leader begins anew, so that a
// delay is never cut short.
type backoffs map[backoffKey]Boot

// due gives the jobs whose delay has passed, at most as many as one entry should name.
func (b *backoffs) due(now Boot, s *state.Snapshot) []muster.JobID {
	seen := backoffs{}
	var due []muster.JobID
	for job := range s.BackingOff() {
		key := backoffKey{job.ID, job.Attempt}
		since, known := (*b)[key]
		if !known {
			since = now
		}
		seen[key] = since
		if now >= since+Boot(job.Backoff) && len(due) < state.PurgeBatch {
			due = append(due, job.ID)
		}
	}
	*b = seen
	return due
}

// wakeBackoffs makes jobs eligible whose delay has passed.
func (l *leadership) wakeBackoffs(ctx context.Context) error {
	seen := backoffs{}
	return l.every(ctx, backoffTick, func(ctx context.Context) error {
		due := seen.due(l.server.config.Clock.Boot(), l.server.hub.newest().snapshot)
		if len(due) == 0 {
			return nil
		}
		return l.proposeOne(ctx, &state.Wake{Term: l.term, Jobs: due})
	})
}

// endDrains stops what still runs on a draining node after its deadline. Deadlines are wall-clock time: people set them.
func (l *leadership) endDrains(ctx context.Context) error {
	type drain struct {
		node     muster.NodeID
		deadline muster.Time
	}
	done := map[drain]bool{}
	return l.every(ctx, drainTick, func(ctx context.Context) error {
		now := muster.TimeOf(l.server.config.Clock.Wall())
		for node := range l.server.hub.newest().snapshot.Nodes() {
			d := drain{node.ID, node.Drain.Deadline}
			if !node.Drain.On || d.deadline == 0 || now < d.deadline || node.Allocs == 0 || done[d] {
				continue
			}
			if err := l.proposeOne(ctx, &state.DrainDue{Term: l.term, Node: node.ID}); err != nil {
				return err
			}
			done[d] = true
		}
		return nil
	})
}

// purge forgets ended jobs that have outlived their retention. (Request ids are forgotten by each entry.)
func (l *leadership) purge(ctx context.Context) error {
	return l.every(ctx, purgeTick, func(ctx context.Context) error {
		for ctx.Err() == nil {
			jobs := outlived(l.server.hub.newest().snapshot, l.server.config.Clock.Wall(), keepJobs)
			if len(jobs) == 0 {
				return nil
			}
			if err := l.proposeOne(ctx, &state.Purge{Term: l.term, Jobs: jobs}); err != nil {
				return err
			}
		}
		return nil
	})
}

// outlived gives ended jobs to forget, those that ended first, at most as many as one entry should name.
func outlived(s *state.Snapshot, now time.Time, keep int) []muster.JobID {
	var jobs []muster.JobID
	for id := range s.Ended(keptSince(now)) {
		if len(jobs) == state.PurgeBatch {
			return jobs
		}
		jobs = append(jobs, id)
	}
	excess := s.JobCount() - keep
	if len(jobs) > 0 || excess <= 0 {
		return jobs
	}
	for id := range s.Ended(muster.TimeOf(now)) {
		if len(jobs) == min(excess, state.PurgeBatch) {
			return jobs
		}
		jobs = append(jobs, id)
	}
	return jobs
}
