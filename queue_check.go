package muster

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The limits of a queue tree.
const (
	MaxQueues     = 4096
	MaxQueueDepth = 8
	MaxWeight     = Milli(1_000_000_000)
)

// CompareName orders queues as a tree is stored: by name.
func (q QueueSpec) CompareName(name string) int { return strings.Compare(q.Name, name) }

// ValidQueueName says whether name may be the path of a queue.
func ValidQueueName(name string) bool { return queuePattern.MatchString(name) }

// CheckQueues says the first thing that is wrong with a tree and a policy, or nil. The error is of KindInvalid; its Field is
// the queue's name, a colon and the attribute in the queues file's words ("research/nlp:max_gpus", "research:caps.priority"), or
// "scheduling:" and the attribute.
func CheckQueues(specs []QueueSpec, p *Policy) *Error {
	v := &validator{}
	if len(specs) > MaxQueues {
		v.fail("", "", "%d queues are more than %d", len(specs), MaxQueues)
		return v.err
	}
	for i := range specs {
		q := &specs[i]
		q.validate(v)
		if i > 0 && specs[i-1].Name >= q.Name {
			v.fail(q.Name+":", "", "queue %q stands twice, or the list is not in the order of names", q.Name)
		}
		if parent := ParentQueue(q.Name); parent != "" {
			if _, known := slices.BinarySearchFunc(specs, parent, QueueSpec.CompareName); !known {
				v.fail(q.Name+":", "", "queue %q stands in %q, which is not there", q.Name, parent)
			}
		}
	}
	checkQuotas(v, specs)
	p.validate(v)
	return v.err
}

func (q *QueueSpec) validate(v *validator) {
	at := func(attribute string) string { return q.Name + ":" + attribute }
	if !ValidQueueName(q.Name) {
		v.fail(at(""), "Each level has at most 63 letters, digits, _ and -, and begins with a letter or a digit", "%q can't be the name of a queue", q.Name)
	}
	if strings.Count(q.Name, "/") >= MaxQueueDepth {
		v.fail(at(""), "", "queue %q stands deeper than %d levels", q.Name, MaxQueueDepth)
	}
	if q.Weight < 1 || q.Weight > MaxWeight {
		v.fail(at("weight"), "It is a share among siblings, such as 1, 2 or 0.5", "the weight of queue %q is not between 0.001 and 1000000", q.Name)
	}
	for _, who := range q.Allow {
		if err := CheckWho(who); err != nil {
			v.fail(at("allow"), err.Hint, "%s", err.Message)
		}
	}
	for i := range q.Quota {
		switch {
		case q.Quota[i].GPUs < 1 || q.Quota[i].GPUs > maxQueueGPUs:
			v.fail(at("gpus"), "", "a quota of %d GPUs in queue %q is not between 1 and %d", q.Quota[i].GPUs, q.Name, maxQueueGPUs)
		case i > 0 && q.Quota[i-1].Model >= q.Quota[i].Model:
			v.fail(at("gpus"), "", "queue %q has two quotas of one model, or they are not in order", q.Name)
		case strings.TrimSpace(q.Quota[i].Model) != q.Quota[i].Model || len(q.Quota[i].Model) > 64:
			v.fail(at("gpus"), `Say a word of the device's name, such as H100`, "%q can't be a GPU model", q.Quota[i].Model)
		}
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"max_gpus", q.MaxGPUs}, {"user_gpus", q.UserGPUs}, {"max_running", q.MaxRunning}, {"max_pending", q.MaxPending}} {
		if n.value < 0 || n.value > maxQueueGPUs {
			v.fail(at(n.name), "", "%s of queue %q is not between 1 and %d", n.name, q.Name, maxQueueGPUs)
		}
	}
	if total := q.Guaranteed(); q.MaxGPUs > 0 && total > q.MaxGPUs {
		v.fail(at("max_gpus"), "", "queue %q is guaranteed %d GPUs, more than its max_gpus of %d", q.Name, total, q.MaxGPUs)
	}
	q.validateJobs(v, at)
	for i := range q.Constraints {
		if err := q.Constraints[i].Check(); err != nil {
			v.fail(at("constraint"), "", "queue %q: %s", q.Name, err)
		}
	}
	if q.Budget != (Budget{}) {
		if !slices.Contains(BudgetPeriods, q.Budget.Period) {
			v.fail(at("budget.period"), "Say "+strings.Join(quoted(BudgetPeriods), ", "), "the period of a budget is not %q", q.Budget.Period)
		}
		if q.Budget.GPUHours < 1 {
			v.fail(at("budget.gpu_hours"), "", "a budget of %d GPU-hours", q.Budget.GPUHours)
		}
	}
	if q.Idle != (IdleRule{}) {
		if q.Idle.After < time.Minute {
			v.fail(at("idle.after"), "", "idle after %s is less than a minute", FormatDuration(max(q.Idle.After, 0)))
		}
		if q.Idle.Below < 1 || q.Idle.Below > 100 {
			v.fail(at("idle.below"), "", "idle below %d%% is not between 1%% and 100%%", q.Idle.Below)
		}
	}
}

// Everyone is the entry of a list of who may submit that lets everyone.
const Everyone = "*"

// CheckWho says what is wrong with an entry of a list of who may submit, or nil.
func CheckWho(who string) *Error {
	if name := strings.TrimPrefix(who, "group:"); name == "" || len(name) > 256 || strings.ContainsAny(name, ": \t\n,\x00") {
		return Errorf(KindInvalid, "%q is neither a user nor a group", who).WithHint(`Say "ann", "group:nlp", or "*" for everyone`)
	}
	return nil
}

const maxQueueGPUs = 10_000_000

// BudgetPeriods are the calendar periods of budgets.
var BudgetPeriods = []string{"day", "week", "month"}

func quoted(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = fmt.Sprintf("%q", w)
	}
	return out
}

// validateJobs looks at what is said of the queue's jobs.
func (q *QueueSpec) validateJobs(v *validator, at func(string) string) {
	if q.Defaults.TimeLimit < 0 {
		v.fail(at("defaults.time_limit"), "", "time_limit is negative")
	}
	if q.Defaults.HasPriority && (q.Defaults.Priority < 0 || q.Defaults.Priority > 100) {
		v.fail(at("defaults.priority"), "", "priority %d is not between 0 and 100", q.Defaults.Priority)
	}
	if q.Caps.TimeLimit < 0 {
		v.fail(at("caps.time_limit"), "", "time_limit is negative")
	}
	if q.Caps.HasPriority && (q.Caps.Priority < 0 || q.Caps.Priority > 100) {
		v.fail(at("caps.priority"), "", "priority %d is not between 0 and 100", q.Caps.Priority)
	}
	if q.Caps.StopAfter != 0 && q.Caps.StopAfter < DefaultLease {
		v.fail(at("caps.stop_after"), "", "a cap of %s is less than %s, which jobs have that say nothing",
			FormatDuration(max(q.Caps.StopAfter, 0)), FormatDuration(DefaultLease))
	}
	if limit := q.Caps.TimeLimit; limit > 0 && q.Defaults.TimeLimit > limit {
		v.fail(at("defaults.time_limit"), "", "the default time_limit %s of queue %q is above its cap, %s",
			FormatDuration(q.Defaults.TimeLimit), q.Name, FormatDuration(limit))
	}
	if q.Caps.HasPriority && q.Defaults.HasPriority && q.Defaults.Priority > q.Caps.Priority {
		v.fail(at("defaults.priority"), "", "the default priority %d of queue %q is above its cap, %d",
			q.Defaults.Priority, q.Name, q.Caps.Priority)
	}
	if q.MinRuntime < 0 {
		v.fail(at("min_runtime"), "", "min_runtime is negative")
	}
	if q.Charge < 0 || q.Charge > MaxWeight {
		v.fail(at("charge"), "0 charges nothing, 1 everything", "the charge of queue %q is not between 0 and 1000000", q.Name)
	}
}

// Guaranteed is the number of GPUs of all the queue's quotas.
func (q *QueueSpec) Guaranteed() int {
	n := 0
	for i := range q.Quota {
		n += q.Quota[i].GPUs
	}
	return n
}

// QuotaOf is the guaranteed number of GPUs of a model, as the quota names it.
func (q *QueueSpec) QuotaOf(model string) int {
	for i := range q.Quota {
		if q.Quota[i].Model == model {
			return q.Quota[i].GPUs
		}
	}
	return 0
}

// checkQuotas: what a queue with a quota guarantees its children is part of it. A queue without one is guaranteed what its
// children are.
func checkQuotas(v *validator, specs []QueueSpec) {
	for i := range specs {
		parent := &specs[i]
		if len(parent.Quota) == 0 {
			continue
		}
		below := map[string]int{}
		total := 0
		var models []string
		for k := i + 1; k < len(specs); k++ {
			if ParentQueue(specs[k].Name) != parent.Name {
				continue
			}
			for _, quota := range specs[k].Quota {
				if below[quota.Model] == 0 {
					models = append(models, quota.Model)
				}
				below[quota.Model] += quota.GPUs
				total += quota.GPUs
			}
		}
		over := 0
		for _, model := range models {
			if extra := below[model] - parent.QuotaOf(model); model != "" && extra > 0 {
				over += extra
				if over > parent.QuotaOf("") {
					v.fail(parent.Name+":gpus", "Raise it, or lower theirs", "the queues in %q are guaranteed %d %s, and it only %d", parent.Name,
						below[model], model, parent.QuotaOf(model))
				}
			}
		}
		if total > parent.Guaranteed() {
			v.fail(parent.Name+":gpus", "Raise it, or lower theirs", "the queues in %q are guaranteed %d GPUs, and it only %d", parent.Name,
				total, parent.Guaranteed())
		}
	}
}

func (p *Policy) validate(v *validator) {
	at := func(attribute string) string { return "scheduling:" + attribute }
	choice(v, at("order"), p.Order, Orders)
	choice(v, at("backfill"), p.Backfill, Backfills)
	choice(v, at("preemption"), p.Preemption, Preemptions)
	choice(v, at("objective"), p.Objective, Objectives)
	if p.Reservations < 0 || p.Reservations > 1000 {
		v.fail(at("reservations"), "", "reservations %d is not between 0 and 1000", p.Reservations)
	}
	if p.MaxPreemptions < 0 {
		v.fail(at("max_preemptions"), "", "max_preemptions is negative")
	}
	if p.HalfLife < time.Minute {
		v.fail(at("half_life"), "", "half_life %s is less than a minute", FormatDuration(max(p.HalfLife, 0)))
	}
	if p.Round < 0 {
		v.fail(at("round"), "", "round is negative")
	}
	if p.WideGPUs < 0 {
		v.fail(at("wide.gpus"), "", "gpus is negative")
	}
	if p.WideAfter < 0 {
		v.fail(at("wide.after"), "", "after is negative")
	}
}

func choice[T ~string](v *validator, field string, value T, known []T) {
	if slices.Contains(known, value) {
		return
	}
	words := make([]string, len(known))
	for i, k := range known {
		words[i] = fmt.Sprintf("%q", k)
	}
	v.fail(field, "Say "+strings.Join(words, ", "), "%q is not a choice", string(value))
}
