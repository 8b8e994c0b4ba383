package cluster

import (
	"context"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/cluster/duty"
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

// wakeBackoffs makes jobs eligible whose delay has passed.
func (l *leadership) wakeBackoffs(ctx context.Context) error {
	seen := duty.Backoffs{}
	return l.every(ctx, backoffTick, func(ctx context.Context) error {
		due := seen.Due(l.server.config.Clock.Boot(), l.server.hub.newest().snapshot)
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

// endWaits cancels jobs that were to start by a time which has passed. It is wall-clock time: people set it.
func (l *leadership) endWaits(ctx context.Context) error {
	return l.every(ctx, startTick, func(ctx context.Context) error {
		jobs := duty.Overdue(l.server.hub.newest().snapshot, muster.TimeOf(l.server.config.Clock.Wall()))
		if len(jobs) == 0 {
			return nil
		}
		return l.proposeOne(ctx, &state.StartDue{Term: l.term, Jobs: jobs})
	})
}

// purge forgets ended jobs that have outlived their retention. (Request ids are forgotten by each entry.)
func (l *leadership) purge(ctx context.Context) error {
	return l.every(ctx, purgeTick, func(ctx context.Context) error {
		for ctx.Err() == nil {
			jobs := duty.Outlived(l.server.hub.newest().snapshot, keptSince(l.server.config.Clock.Wall()), keepJobs)
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
