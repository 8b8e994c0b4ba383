//go:build chaos

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/test/chaos/check"
)

// run is one run of the suite.
type run struct {
	t *testing.T
	settings
	dir     string
	began   check.Instant
	world   *World
	out     *check.Recorder
	history check.History
	jobs    *jobList
}

func (r *run) say(format string, args ...any) {
	r.t.Logf("%6.1fs  %s", now().Sub(r.began).Seconds(), fmt.Sprintf(format, args...))
}

func (r *run) execute(ctx context.Context, binary string) {
	t := r.t
	var err error
	if r.world, err = NewWorld(r.dir, binary, r.seed, 3, 4, r.say); err != nil {
		t.Fatal(err)
	}
	closed := false
	shut := func() error {
		if closed {
			return nil
		}
		closed = true
		return r.world.Close()
	}
	defer func() { _ = shut() }() // also when something below gives up
	if err := syscall.Mkfifo(filepath.Join(r.world.evidence(), "tick"), 0o666); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(r.world.evidence(), "calls.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r.out = check.NewRecorder(file)
	r.jobs = &jobList{live: map[muster.JobID]bool{}, over: map[muster.JobID]check.Instant{}}
	overseer, err := r.world.newClient(0, r.seed, r.out, r.jobs)
	if err != nil {
		t.Fatal(err)
	}
	r.ready(ctx, overseer)
	r.began = now()

	working, finish := context.WithCancel(ctx)
	defer finish()
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	var workers, watchers sync.WaitGroup
	for i := range 4 {
		c, err := r.world.newClient(i+1, r.seed, r.out, r.jobs)
		if err != nil {
			t.Fatal(err)
		}
		workers.Go(func() { c.work(working) })
	}
	for _, name := range r.world.Servers {
		watchers.Go(func() { r.world.watchServer(watching, name, r.out) })
	}
	r.harass(ctx)
	finish()
	workers.Wait()
	r.settle(ctx, overseer)
	r.probe(ctx, overseer)
	final, err := overseer.final()
	if err != nil {
		t.Errorf("the state at the end can't be read: %v", err)
	}
	unwatch()
	watchers.Wait()
	for _, m := range r.world.all() {
		for _, l := range m.Leftovers() {
			r.out.Add(check.Record{Leftover: &l})
		}
	}
	if err := shut(); err != nil {
		t.Errorf("the machines did not end well: %v", err)
	}
	if ctx.Err() != nil {
		t.Fatal("interrupted")
	}
	r.out.Add(check.Record{Final: &final})
	if err := r.out.Err(); err != nil {
		t.Fatal(err)
	}
	r.judge(file.Name())
}

// ready waits until all workers are there.
func (r *run) ready(ctx context.Context, c *client) {
	deadline := time.Now().Add(60 * time.Second)
	for ctx.Err() == nil {
		f, err := c.final()
		n := 0
		for _, node := range f.Nodes {
			if strings.HasSuffix(node, " ready") {
				n++
			}
		}
		if err == nil && n == len(r.world.Workers) {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("the cluster is not ready after 60 s: nodes %v, %v", f.Nodes, err)
		}
		wait(ctx, 200*time.Millisecond)
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// harass does what is planned.
func (r *run) harass(ctx context.Context) {
	r.say("seed %d", r.seed)
	steps := r.steps
	if steps == nil {
		steps = Plan(r.seed, r.duration, r.world.Servers, r.world.Workers, r.settings.faults)
	}
	for _, step := range steps {
		r.say("plan: %s", step)
	}
	for _, step := range steps {
		wait(ctx, step.At-now().Sub(r.began))
		if ctx.Err() != nil {
			return
		}
		var heals []func()
		var hits []check.Fault
		for _, f := range step.Faults {
			start := now()
			hit, heal, err := f.Begin(r.world)
			if err != nil {
				r.t.Errorf("%s: %v", f, err)
			}
			hit.Kind, hit.Start = f.Kind(), start
			r.say("%s (%s)", f, strings.Join(hit.Targets, ", "))
			hits, heals = append(hits, hit), append(heals, heal)
		}
		wait(ctx, step.For)
		for i := range heals {
			if heals[i] != nil {
				heals[i]()
			}
			hits[i].End = now()
			r.out.Add(check.Record{Fault: &hits[i]})
		}
		r.say("healed")
	}
	if len(steps) == 0 {
		wait(ctx, r.duration)
		r.out.Add(check.Record{Fault: &check.Fault{Kind: "none", Start: now(), End: now()}}) // from here on all must end
	}
	wait(ctx, time.Second)
}

// settle waits until all jobs have ended or are held, for at most a minute.
func (r *run) settle(ctx context.Context, c *client) {
	deadline := time.Now().Add(62 * time.Second)
	for ctx.Err() == nil && time.Now().Before(deadline) {
		if infos, err := c.all(); err == nil {
			living := 0
			for _, info := range infos {
				phase, _ := muster.ParseJobPhase(info.State)
				if !phase.Terminal() && phase != muster.JobHeld {
					living++
				}
			}
			if living == 0 {
				r.say("all jobs have ended or are held")
				return
			}
		}
		wait(ctx, 500*time.Millisecond)
	}
}

// probe submits a job and waits until it has run.
func (r *run) probe(ctx context.Context, c *client) {
	spec := aJob(c.random, "probe", r.world.evidence())
	spec.Groups[0].Count = 1
	spec.Groups[0].Task.Script = muster.EscapeRuntime(fmt.Sprintf(beatScript, "", r.world.evidence(), r.world.evidence(), 10, "0"))
	probe := check.Probe{Asked: now()}
	call, err := c.submitJob(spec)
	if err != nil {
		r.t.Errorf("after all was healed a job could not be submitted: %v", err)
		return
	}
	probe.Job = call.Jobs[0]
	for deadline := time.Now().Add(20 * time.Second); ctx.Err() == nil && time.Now().Before(deadline); wait(ctx, 50*time.Millisecond) {
		if infos, err := c.all(); err == nil {
			i := slices.IndexFunc(infos, func(j *jobInfo) bool { return j.Id == uint64(probe.Job) })
			if i >= 0 && infos[i].StartedAt != 0 {
				probe.Ran = now()
				break
			}
		}
	}
	r.out.Add(check.Record{Probe: &probe})
	for deadline := time.Now().Add(10 * time.Second); ctx.Err() == nil && time.Now().Before(deadline); wait(ctx, 100*time.Millisecond) {
		if c.get(probe.Job, false); r.jobs.hasEnded(probe.Job) {
			return
		}
	}
}

// judge reads everything that was written down, and prints what came of it.
func (r *run) judge(calls string) {
	t := r.t
	h := &r.history
	f, err := os.Open(calls)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := h.Read(f); err != nil {
		t.Fatal(err)
	}
	h.Run = check.Run{Seed: int64(r.seed), Start: r.began, End: now(), Servers: r.world.Servers, Replay: r.replay()}
	for _, m := range r.world.all() {
		node := m.Name
		if of, twin := strings.CutPrefix(filepath.Base(m.Dir), twinHost+"-of-"); twin {
			node = of[:strings.LastIndex(of, "-")]
		}
		events, panics, err := m.journal(node)
		if err != nil {
			t.Errorf("journal of %s: %v", m.Name, err)
		}
		if !m.Server {
			h.Events = append(h.Events, events...)
		}
		for _, p := range panics {
			t.Errorf("a process panicked: %s", p)
		}
	}
	h.Events = withoutTheOthers(h.Events)
	name(h)
	if h.Beats, err = r.world.beats(); err != nil {
		t.Errorf("lines of tasks: %v", err)
	}
	if err := r.replayLogs(h); err != nil {
		t.Errorf("the servers' logs: %v", err)
	}
	whole, err := os.Create(filepath.Join(r.world.evidence(), "history.jsonl"))
	if err == nil {
		err = errors.Join(h.Write(whole), whole.Close())
	}
	if err != nil {
		t.Errorf("evidence: %v", err)
	}
	report := check.All(h)
	t.Logf("\n%s", report)
	if n := len(report.Violations); n > 0 {
		t.Errorf("%d violations", n)
	}
}

// name fills in which rank an event is about, where only the allocation was written down: of what was never started.
func name(h *check.History) {
	type place struct {
		job  muster.JobID
		rank check.Rank
	}
	places := map[string]place{}
	for _, j := range h.Final.Jobs {
		for _, rank := range j.Ranks {
			places[rank.Alloc] = place{j.ID, rank}
		}
	}
	h.Events = slices.DeleteFunc(h.Events, func(e check.Event) bool { return e.Job == 0 && places[e.Alloc].job == 0 })
	for i := range h.Events {
		if e := &h.Events[i]; e.Job == 0 {
			p := places[e.Alloc]
			e.Job, e.Attempt, e.Group, e.Rank = p.job, p.rank.Attempt, p.rank.Group, p.rank.Rank
		}
	}
}
