package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// world is a replicated state with a view that follows it, entry by entry.
type world struct {
	t     tester
	state *state.State
	index muster.Index
	snap  *state.Snapshot
	view  *View
	clock muster.Time // when it is; 0: by the entry
}

// tester is what testing.TB and rapid.T share.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

const term = 1

func newWorld(t tester) *world {
	w := &world{t: t, state: state.New()}
	w.snap = w.state.Snapshot()
	w.view = NewView(w.snap)
	w.apply(&state.InitCluster{ClusterID: "test"})
	return w
}

// apply applies an entry, which may refuse nothing, and brings the view forward.
func (w *world) apply(commands ...state.Command) []state.Result {
	w.t.Helper()
	results := w.applyAnyway(commands...)
	for _, r := range results {
		if r.Err != nil {
			w.t.Fatalf("refused: %v", r.Err)
		}
	}
	return results
}

func (w *world) applyAnyway(commands ...state.Command) []state.Result {
	w.index++
	results, changed := w.state.Apply(state.Entry{Stamp: max(w.clock, 1_000_000+muster.Time(w.index)), Commands: commands}, w.index, term)
	w.snap = w.state.Snapshot()
	w.view.Advance(w.snap, changed)
	return results
}

// node registers a machine of 64 cores and 512 GiB with GPUs: "H100*8", "A100*4 L40S*2", or "".
func (w *world) node(name, gpus string, edits ...func(*muster.Node)) muster.NodeID {
	w.t.Helper()
	n := machine(name, gpus)
	for _, edit := range edits {
		edit(&n)
	}
	return w.apply(&state.RegisterNode{Node: n})[0].Node
}

func machine(name, gpus string) muster.Node {
	n := muster.Node{Name: name, Address: name + ":4691", IP: "10.0.0.1",
		Hardware: "hw-" + name, Boot: "boot", Instance: "i-" + name, Session: "s-" + name, MilliCores: 64_000, Memory: 512 * muster.GiB, Fencing: "strong", Version: "1.0.0",
		PortLow: 20000, PortHigh: 29999}
	for _, part := range strings.Fields(gpus) {
		model, number, _ := strings.Cut(part, "*")
		var k int
		fmt.Sscan(number, &k)
		for range k {
			n.GPUs = append(n.GPUs, muster.GPU{UUID: fmt.Sprintf("GPU-%s-%d", name, len(n.GPUs)), Model: "NVIDIA " + model + " 80GB",
				Memory: 80 * muster.GiB, BusID: fmt.Sprintf("0000:%02x:00.0", len(n.GPUs)), Health: muster.GPUHealthy})
		}
	}
	return n
}

func label(key, value string) func(*muster.Node) {
	return func(n *muster.Node) {
		n.Labels = append(n.Labels, muster.Label{Key: key, Value: value})
		slices.SortFunc(n.Labels, func(a, b muster.Label) int { return cmp.Compare(a.Key, b.Key) })
	}
}

// spec is a valid job of one rank that does nothing; edits say what it needs.
func spec(edits ...func(*muster.JobSpec)) *muster.JobSpec {
	s := muster.DefaultJobSpec()
	s.Name = "job"
	s.Groups = []muster.Group{group("job", 1)}
	for _, edit := range edits {
		edit(&s)
	}
	s.FillDefaults()
	return &s
}

func group(name string, count int) muster.Group {
	g := muster.DefaultGroup()
	g.Name, g.Count = name, count
	g.Task.Name, g.Task.Command = name, "true"
	return g
}

func ranks(n int) func(*muster.JobSpec) { return func(s *muster.JobSpec) { s.Groups[0].Count = n } }
func gpus(n int, models ...string) func(*muster.JobSpec) {
	return needs(func(r *muster.Resources) { r.GPUs, r.Models = n, models })
}
func cores(n int) func(*muster.JobSpec) {
	return needs(func(r *muster.Resources) { r.MilliCores = muster.MilliCores(n) * 1000 })
}
func memory(b muster.Bytes) func(*muster.JobSpec) {
	return needs(func(r *muster.Resources) { r.Memory = b })
}
func exclusive(s *muster.JobSpec)             { s.Groups[0].Task.Resources.Exclusive = true }
func priority(p int) func(*muster.JobSpec)    { return func(s *muster.JobSpec) { s.Priority = p } }
func named(name string) func(*muster.JobSpec) { return func(s *muster.JobSpec) { s.Name = name } }
func within(domain string) func(*muster.JobSpec) {
	return func(s *muster.JobSpec) { s.Groups[0].Within = domain }
}
func needs(f func(*muster.Resources)) func(*muster.JobSpec) {
	return func(s *muster.JobSpec) { f(&s.Groups[0].Task.Resources) }
}
func where(attribute string, op muster.Operator, value string) func(*muster.JobSpec) {
	return func(s *muster.JobSpec) {
		rule := muster.Constraint{Attribute: attribute, Operator: op, Value: value}
		s.Groups[0].Constraints = append(s.Groups[0].Constraints, rule)
	}
}

// submit adds a job of ann's; what no node could run is accepted.
func (w *world) submit(edits ...func(*muster.JobSpec)) muster.JobID {
	w.t.Helper()
	return w.submitSpec("ann", spec(edits...))
}

func (w *world) submitSpec(user string, s *muster.JobSpec) muster.JobID {
	w.t.Helper()
	return w.apply(&state.Submit{Header: state.Header{User: user}, Specs: []*muster.JobSpec{s}, Pend: true})[0].Jobs[0]
}

// place runs passes until nothing more starts. The state must take every gang.
func (w *world) place() { w.t.Helper(); w.placeWith(Signals{}) }

func (w *world) placeWith(signals Signals) {
	w.t.Helper()
	for {
		plan := Schedule(w.view, signals, 0)
		if len(plan.Gangs) == 0 {
			return
		}
		w.commit(plan)
	}
}

func (w *world) commit(plan Plan) {
	w.t.Helper()
	for _, refusal := range w.apply(&state.CommitPlan{Term: term, Gangs: plan.Gangs})[0].Refused {
		w.t.Fatalf("the state refused job %d: %s", refusal.Job, refusal.Reason)
	}
}

// at says where a job's newest attempt is: "n1:0,1 n2:0,1" by rank; "" when it is not placed.
func (w *world) at(id muster.JobID) string {
	job, ok := w.snap.Job(id)
	if !ok || !job.Phase.Placed() {
		return ""
	}
	var out []string
	for a := range w.snap.AllocsOfAttempt(id, job.Attempt) {
		n, _ := w.snap.Node(a.Node)
		out = append(out, n.Name+":"+a.Slots.String())
	}
	return strings.Join(out, " ")
}

func (w *world) expect(id muster.JobID, want string) {
	w.t.Helper()
	if got := w.at(id); got != want {
		w.t.Fatalf("job %d is at %q, want %q", id, got, want)
	}
}

// end ends a job's allocations with an exit code.
func (w *world) end(id muster.JobID, class muster.Class, code int) {
	w.t.Helper()
	job, _ := w.snap.Job(id)
	byNode := map[muster.NodeID][]muster.AllocReport{}
	var nodes []muster.NodeID
	for a := range w.snap.AllocsOfAttempt(id, job.Attempt) {
		if a.Phase == muster.AllocEnded {
			continue
		}
		if byNode[a.Node] == nil {
			nodes = append(nodes, a.Node)
		}
		report := muster.AllocReport{ID: a.ID, Phase: muster.AllocEnded, Class: class, ExitCode: code}
		byNode[a.Node] = append(byNode[a.Node], report)
	}
	for _, n := range nodes {
		w.apply(&state.ReportAllocs{Node: n, Allocs: byNode[n]})
	}
	if job, _ = w.snap.Job(id); job.Backoff > 0 {
		w.apply(&state.Wake{Term: term, Jobs: []muster.JobID{id}})
	}
}

func (w *world) why(id muster.JobID) Explained {
	w.t.Helper()
	return w.whyWith(id, Signals{})
}

func (w *world) whyWith(id muster.JobID, signals Signals) Explained {
	w.t.Helper()
	e, ok := w.view.Explain(id, signals, w.snap.Cluster().Time)
	if !ok {
		w.t.Fatalf("job %d is not known", id)
	}
	return e
}

// tell writes an explanation as text, to be read and compared.
func tell(e Explained) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d, %d ahead %v\n%s\n", e.Position, e.Of, e.AheadCount, e.Ahead, e.Headline)
	for _, r := range e.Reasons {
		never := ""
		if r.Never {
			never = " never"
		}
		line := fmt.Sprintf("  %s%s %d %s  %s", r.Kind, never, r.Count, strings.Join(r.Nodes, " "), r.Detail)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if e.Note != "" {
		b.WriteString(e.Note + "\n")
	}
	return b.String()
}
