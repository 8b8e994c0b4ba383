package queuefile

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2/hclwrite"

	"github.com/musterhpc/muster"
)

// Write gives a file that Parse reads as these queues, sorted by name, and this policy. What is as usual, or inherited, is left
// out.
func Write(queues []muster.QueueSpec, policy muster.Policy) []byte {
	w := &writer{}
	w.tree(queues, "", nil)
	w.policy(policy)
	return hclwrite.Format(bytes.TrimLeft(w.out.Bytes(), "\n"))
}

type writer struct{ out bytes.Buffer }

// block opens a block; what it returns closes it.
func (w *writer) block(format string, args ...any) func() {
	fmt.Fprintf(&w.out, format+" {\n", args...)
	return func() { w.out.WriteString("}\n") }
}

func (w *writer) set(name, value string) { fmt.Fprintf(&w.out, "%s = %s\n", name, value) }

func (w *writer) count(name string, n int) {
	if n != 0 {
		w.set(name, strconv.Itoa(n))
	}
}

// duration writes one that is not as usual.
func (w *writer) duration(name string, d, usual time.Duration) {
	if d != usual {
		w.set(name, quote(muster.FormatDuration(d)))
	}
}

// quote writes a text as HCL: ${ and %{ would be read as templates.
func quote(s string) string {
	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(strconv.Quote(s))
}

// tree writes the queues right below one, with theirs in them.
func (w *writer) tree(queues []muster.QueueSpec, parent string, above *muster.QueueSpec) {
	for i := range queues {
		q := &queues[i]
		if muster.ParentQueue(q.Name) != parent {
			continue
		}
		end := w.block("queue %q", q.Name[strings.LastIndexByte(q.Name, '/')+1:])
		w.queue(q, above)
		w.tree(queues, q.Name, q)
		end()
	}
}

func (w *writer) queue(q, above *muster.QueueSpec) {
	if above == nil {
		above = &muster.QueueSpec{}
	}
	if q.Weight != 1000 {
		w.set("weight", thousandths(q.Weight))
	}
	if !slices.Equal(q.Allow, above.Allow) {
		w.allow(q.Allow)
	}
	w.quota(q.Quota)
	w.count("max_gpus", q.MaxGPUs)
	w.count("user_gpus", q.UserGPUs)
	w.count("max_running", q.MaxRunning)
	w.count("max_pending", q.MaxPending)
	w.duration("min_runtime", q.MinRuntime, 0)
	if q.Charge != 1000 {
		w.set("charge", thousandths(q.Charge))
	}
	if q.Defaults != above.Defaults {
		end := w.block("defaults")
		w.duration("time_limit", q.Defaults.TimeLimit, above.Defaults.TimeLimit)
		w.priority(q.Defaults.HasPriority, q.Defaults.Priority, above.Defaults.HasPriority, above.Defaults.Priority)
		end()
	}
	if q.Caps != above.Caps {
		end := w.block("caps")
		w.duration("time_limit", q.Caps.TimeLimit, above.Caps.TimeLimit)
		w.priority(q.Caps.HasPriority, q.Caps.Priority, above.Caps.HasPriority, above.Caps.Priority)
		w.duration("stop_after", q.Caps.StopAfter, above.Caps.StopAfter)
		end()
	}
	for i := range q.Constraints {
		w.constraint(&q.Constraints[i])
	}
	if q.Budget != (muster.Budget{}) {
		end := w.block("budget")
		w.set("period", quote(q.Budget.Period))
		w.set("gpu_hours", strconv.FormatInt(q.Budget.GPUHours, 10))
		end()
	}
	if q.Idle != above.Idle {
		end := w.block("idle")
		w.set("after", quote(muster.FormatDuration(q.Idle.After)))
		w.set("below", quote(strconv.Itoa(q.Idle.Below)+"%"))
		if q.Idle.Cancel {
			w.set("action", quote("cancel"))
		}
		end()
	}
}

func (w *writer) priority(has bool, priority int, hadAbove bool, above int) {
	if has && (!hadAbove || priority != above) {
		w.set("priority", strconv.Itoa(priority))
	}
}

func (w *writer) allow(list []string) {
	if len(list) == 0 {
		list = []string{muster.Everyone}
	}
	entries := make([]string, len(list))
	for i, who := range list {
		entries[i] = quote(who)
	}
	w.set("allow", "["+strings.Join(entries, ", ")+"]")
}

var plainKey = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)

func (w *writer) quota(list []muster.Quota) {
	if len(list) == 0 {
		return
	}
	if len(list) == 1 && list[0].Model == "" {
		w.count("gpus", list[0].GPUs)
		return
	}
	w.out.WriteString("gpus = {\n")
	for _, q := range list {
		key := q.Model
		if !plainKey.MatchString(key) {
			key = quote(key)
		}
		w.set(key, strconv.Itoa(q.GPUs))
	}
	w.out.WriteString("}\n")
}

func (w *writer) constraint(c *muster.Constraint) {
	defer w.block("constraint")()
	w.set("attribute", quote(c.Attribute))
	if c.Operator != muster.OpEqual {
		w.set("operator", quote(string(c.Operator)))
	}
	if c.Value != "" {
		w.set("value", quote(c.Value))
	}
}

func thousandths(m muster.Milli) string { return muster.MilliCores(m).String() }

func (w *writer) policy(p muster.Policy) {
	usual := muster.DefaultPolicy()
	if p == usual {
		return
	}
	defer w.block("scheduling")()
	if p.FairShare != usual.FairShare {
		w.set("fair_share", strconv.FormatBool(p.FairShare))
	}
	for _, word := range []struct{ name, value, usual string }{
		{"order", string(p.Order), string(usual.Order)},
		{"backfill", string(p.Backfill), string(usual.Backfill)},
		{"preemption", string(p.Preemption), string(usual.Preemption)},
		{"objective", string(p.Objective), string(usual.Objective)},
	} {
		if word.value != word.usual {
			w.set(word.name, quote(word.value))
		}
	}
	if p.Reservations != usual.Reservations {
		w.set("reservations", strconv.Itoa(p.Reservations))
	}
	w.count("max_preemptions", p.MaxPreemptions)
	w.duration("half_life", p.HalfLife, usual.HalfLife)
	w.duration("round", p.Round, usual.Round)
	if p.WideGPUs != usual.WideGPUs || p.WideAfter != usual.WideAfter {
		end := w.block("wide")
		if p.WideGPUs != usual.WideGPUs {
			w.set("gpus", strconv.Itoa(p.WideGPUs))
		}
		w.duration("after", p.WideAfter, usual.WideAfter)
		end()
	}
}
