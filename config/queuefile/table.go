package queuefile

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config/schema"
)

// document is what a file is read into.
type document struct {
	Queues []queue
	Policy muster.Policy
}

// queue is a queue block, whose Spec has the name of its own level only.
type queue struct {
	Spec   muster.QueueSpec
	Queues []queue
}

func newQueue() any { return queue{Spec: muster.NewQueueSpec("")} }

// fileTable is the whole grammar of the queues file.
var fileTable = schema.Body{Blocks: []schema.Block{
	{Name: "queue", Label: "name", LabelAs: "Spec.Name", Field: "Queues", Many: true, Path: "queues", New: newQueue, Body: &queueTable,
		Doc: "jobs that share a quota and rules; a queue in it is a part of it"},
	{Name: "scheduling", Field: "Policy", Body: &schedulingTable, Doc: "how the cluster schedules"},
}}

var queueTable = schema.Body{
	Attrs: []schema.Attr{
		{Name: "weight", Kind: schema.Milli, Field: "Spec.Weight", Default: "1", Positive: true, Doc: "share of what no quota claims, among siblings"},
		{Name: "allow", Kind: schema.Strings, Field: "Spec.Allow", Default: `["*"]`, Positive: true, Parse: parseWho,
			Doc: "who may submit: users, group:NAME, or * for everyone"},
		{Name: "gpus", Kind: schema.Quotas, Field: "Spec.Quota", Default: "0", Doc: "quota: guaranteed; a number of any model, or numbers by model"},
		{Name: "max_gpus", Kind: schema.Int, Field: "Spec.MaxGPUs", Positive: true, Doc: "held by its jobs at most, those of the queues in it included"},
		{Name: "user_gpus", Kind: schema.Int, Field: "Spec.UserGPUs", Positive: true, Doc: "held by one user's jobs at most"},
		{Name: "max_running", Kind: schema.Int, Field: "Spec.MaxRunning", Positive: true, Doc: "jobs that hold resources at most"},
		{Name: "max_pending", Kind: schema.Int, Field: "Spec.MaxPending", Positive: true, Doc: "jobs that wait at most; more are refused"},
		{Name: "min_runtime", Kind: schema.Duration, Field: "Spec.MinRuntime", Default: `"0s"`, Doc: "of an attempt, before it may be preempted"},
		{Name: "charge", Kind: schema.Milli, Field: "Spec.Charge", Default: "1", Doc: "of what runs here, how much lowers its user's share elsewhere"},
	},
	Blocks: []schema.Block{
		{Name: "defaults", Field: "Spec.Defaults", Doc: "for what a job leaves out", Body: &schema.Body{Attrs: []schema.Attr{
			{Name: "time_limit", Kind: schema.Duration, Field: "TimeLimit", Positive: true, Doc: "of an attempt"},
			{Name: "priority", Kind: schema.Int, Field: "Priority", Default: "50", Doc: "0 to 100"},
		}}},
		{Name: "caps", Field: "Spec.Caps", Doc: "what a job may ask for at most", Body: &schema.Body{Attrs: []schema.Attr{
			{Name: "time_limit", Kind: schema.Duration, Field: "TimeLimit", Positive: true, Doc: "a job must then have one"},
			{Name: "priority", Kind: schema.Int, Field: "Priority", Doc: "0 to 100"},
			{Name: "stop_after", Kind: schema.Duration, Field: "StopAfter", Positive: true, Doc: "how long it may run on without contact"},
		}}},
		{Name: "constraint", Field: "Spec.Constraints", Many: true, Doc: "must hold on a node that its jobs use", New: newConstraint,
			Body: &schema.Body{Attrs: []schema.Attr{
				{Name: "attribute", Field: "Attribute", Required: true, Doc: "node.* or label.*"},
				{Name: "operator", Field: "Operator", Default: `"="`, Words: operators(), Doc: "compares the attribute with the value"},
				{Name: "value", Kind: schema.Scalar, Field: "Value", Doc: "for in and not_in: values separated by commas"},
			}}},
		{Name: "budget", Field: "Spec.Budget", Later: true, Doc: "GPU-hours in a calendar period", Body: &schema.Body{Attrs: []schema.Attr{
			{Name: "period", Field: "Period", Required: true, Words: muster.BudgetPeriods, Doc: "in UTC"},
			{Name: "gpu_hours", Kind: schema.Int, Field: "GPUHours", Required: true, Doc: "said from 80 % on; at 100 % new work waits"},
		}}},
		{Name: "idle", Field: "Spec.Idle", Later: true, Doc: "GPUs hardly used for so long", Body: &schema.Body{Attrs: []schema.Attr{
			{Name: "after", Kind: schema.Duration, Field: "After", Required: true, Doc: "so long"},
			{Name: "below", Field: "Below", Default: `"5%"`, Parse: parsePercent, Doc: "GPU use"},
			{Name: "action", Field: "Cancel", Default: `"warn"`, Words: []string{"warn", "cancel"}, Parse: parseAction, Doc: "what happens"},
		}}},
	},
}

// A queue holds queues: the table can't name itself before it is there.
func init() {
	queueTable.Blocks = append(queueTable.Blocks, schema.Block{
		Name: "queue", Label: "name", LabelAs: "Spec.Name", Field: "Queues", Many: true, Path: "queues", New: newQueue, Body: &queueTable,
		Doc: "a part of this queue",
	})
}

func newConstraint() any { return muster.Constraint{Operator: muster.OpEqual} }

var schedulingTable = schema.Body{
	Attrs: []schema.Attr{
		{Name: "fair_share", Kind: schema.Bool, Field: "FairShare", Default: "true", Doc: "across queues by quota and share; false: all as one queue"},
		{Name: "order", Field: "Order", Default: `"fair"`, Words: words(muster.Orders), Doc: "inside a queue"},
		{Name: "reservations", Kind: schema.Int, Field: "Reservations", Default: "8", Doc: "blocked jobs with a planned start"},
		{Name: "max_preemptions", Kind: schema.Int, Field: "MaxPreemptions", Default: "0", Doc: "of one job in a day; 0: no limit"},
		{Name: "backfill", Field: "Backfill", Default: `"easy"`, Words: words(muster.Backfills), Doc: "when a later job may start first"},
		{Name: "preemption", Field: "Preemption", Default: `"fair"`, Words: words(muster.Preemptions), Doc: "who may be stopped for whom"},
		{Name: "half_life", Kind: schema.Duration, Field: "HalfLife", Default: `"7d"`, Doc: "of past use"},
		{Name: "objective", Field: "Objective", Default: `"throughput"`, Words: words(muster.Objectives[:1]),
			Unbuilt: words(muster.Objectives[1:]), Doc: "weights of the placement score"},
		{Name: "round", Kind: schema.Duration, Field: "Round", Default: `"0s"`, Doc: "preemption by remaining time at most this often; 0s: at every change"},
	},
	Blocks: []schema.Block{
		{Name: "wide", Doc: "gangs that would starve go first", Body: &schema.Body{Attrs: []schema.Attr{
			{Name: "gpus", Kind: schema.Int, Field: "WideGPUs", Default: "8", Doc: "wider than"},
			{Name: "after", Kind: schema.Duration, Field: "WideAfter", Default: `"10h"`, Doc: "once they waited so long"},
		}}},
	},
}

func words[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, w := range list {
		out[i] = string(w)
	}
	return out
}

func operators() []string { return words(muster.Operators) }

func parseWho(s string) (any, error) {
	if err := muster.CheckWho(s); err != nil {
		return "", err
	}
	return s, nil
}

func parsePercent(s string) (any, error) {
	number, isPercent := strings.CutSuffix(s, "%")
	n, err := strconv.Atoi(number)
	if err != nil || !isPercent || n < 1 || n > 100 {
		return 0, fmt.Errorf("%q is not a percentage, as in \"5%%\"", s)
	}
	return n, nil
}

func parseAction(s string) (any, error) { return s == "cancel", nil }

// hints are words from elsewhere, and what the file says instead. A test parses the HCL that they show.
var hints = []schema.Hint{
	{Word: "partition", Say: "Jobs are parted by queues:", HCL: "queue \"gpu\" {\n}"},
	{Word: "children", Say: "A queue in a queue is a block in it:", HCL: "queue \"research\" {\n  queue \"nlp\" {\n  }\n}"},
	{Word: "parent", Say: "A queue in a queue is a block in it:", HCL: "queue \"research\" {\n  queue \"nlp\" {\n  }\n}"},
	{Word: "quota", Say: "What a queue is guaranteed is", HCL: "gpus = %s", Example: "64", Fits: `\d+`},
	{Word: "guarantee", Say: "What a queue is guaranteed is", HCL: "gpus = %s", Example: "64", Fits: `\d+`},
	{Word: "min", Say: "What a queue is guaranteed is", HCL: "gpus = %s", Example: "64", Fits: `\d+`},
	{Word: "max", Say: "What a queue never exceeds is", HCL: "max_gpus = %s", Example: "160", Fits: `\d+`},
	{Word: "limit", Say: "What a queue never exceeds is", HCL: "max_gpus = %s", Example: "160", Fits: `\d+`},
	{Word: "gpu_limit", Say: "What a queue never exceeds is", HCL: "max_gpus = %s", Example: "160", Fits: `\d+`},
	{Word: "fairshare", Say: "A queue's share among its siblings is", HCL: "weight = %s", Example: "2", Fits: `\d+`},
	{Word: "shares", Say: "A queue's share among its siblings is", HCL: "weight = %s", Example: "2", Fits: `\d+`},
	{Word: "allow_users", Say: "Who may submit is", HCL: "allow = %s", Example: `["ann"]`, Fits: `\["[^$%\n]*"\]`},
	{Word: "users", Say: "Who may submit is", HCL: "allow = %s", Example: `["ann"]`, Fits: `\["[^$%\n]*"\]`},
	{Word: "groups", Say: "Who may submit is", HCL: "allow = [\"group:nlp\"]"},
	{Word: "allow_groups", Say: "Who may submit is", HCL: "allow = [\"group:nlp\"]"},
	{Word: "max_jobs", Say: "The number of jobs that run together is", HCL: "max_running = %s", Example: "200", Fits: `\d+`},
	{Word: "max_time", Say: "The longest time limit of a job is", HCL: "caps {\n  time_limit = %s\n}", Example: `"7d"`, Fits: `"\d+[smhd]"`},
	{Word: "default_time", Say: "The time limit of a job that has none is", HCL: "defaults {\n  time_limit = %s\n}", Example: `"24h"`, Fits: `"\d+[smhd]"`},
	{Word: "nodes", Say: "Nodes are chosen by their labels:", HCL: "constraint {\n  attribute = \"label.pool\"\n  value     = \"nlp\"\n}"},
	{In: "queue", Word: "priority", Say: "Queues have no priority among each other, they have quota and weight. The priority of jobs that say none is",
		HCL: "defaults {\n  priority = %s\n}", Example: "50", Fits: `\d+`},
	{In: "queue", Word: "time_limit", Say: "The time limit of jobs that have none, and the longest one, are",
		HCL: "defaults {\n  time_limit = \"24h\"\n}\ncaps {\n  time_limit = \"7d\"\n}"},
}
