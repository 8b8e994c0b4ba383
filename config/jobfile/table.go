package jobfile

import (
	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config/schema"
)

// document is what a file is read into.
type document struct {
	names
	Jobs []job
}

// job is a job block: the job's own, and the group that it is when it has no group blocks.
type job struct {
	Spec   muster.JobSpec
	Group  group
	Groups []group
}

// group is a group's own, and its tasks.
type group struct {
	muster.Group
	Tasks []muster.Task
}

func newGroup() any {
	g := muster.DefaultGroup()
	return group{Group: g}
}

func newTask() any { return muster.DefaultGroup().Task }

func newJob() any { return job{Spec: muster.DefaultJobSpec(), Group: newGroup().(group)} }

// fileTable is the whole grammar of the job file.
var fileTable = schema.Body{Blocks: []schema.Block{
	{Name: "job", Label: "name", LabelAs: "Spec.Name", Field: "Jobs", Many: true, Path: "jobs", New: newJob, Body: &jobTable,
		Doc: "what is submitted; several in a file are submitted together or not at all"},
	{Name: "variable", Label: "name", LabelAs: "Name", Field: "Variables", Many: true, Body: &variableTable,
		Doc: "a value given with --var, --var-file or MUSTER_VAR_NAME; ${var.NAME}"},
	{Name: "locals", Field: "Locals", Many: true, Body: &localsTable, Doc: "values used in several places; ${local.NAME}"},
}}

var jobTable = withGroup(schema.Body{
	Attrs: []schema.Attr{
		{Name: "type", Field: "Spec.Type", Default: `"batch"`, Words: []string{"batch"}, Unbuilt: []string{"service", "daemon"},
			Parse: func(string) (any, error) { return muster.Batch, nil }, Doc: "batch runs to its end"},
		{Name: "queue", Field: "Spec.Queue", Default: `"default"`, Doc: "the queue's path, as in \"research/nlp\""},
		{Name: "priority", Kind: schema.Int, Field: "Spec.Priority", Doc: "0 to 100; orders jobs inside a queue; the queue's when left out, else 50"},
		{Name: "time_limit", Kind: schema.Duration, Field: "Spec.TimeLimit", Positive: true, Doc: "of one attempt, from the start of its main task"},
		{Name: "start_after", Kind: schema.Any, Later: true, Doc: "a time before which it waits"},
		{Name: "labels", Kind: schema.Map, Field: "Spec.Labels", Doc: "keys and values to find jobs by"},
		{Name: "notify", Kind: schema.Any, Later: true, Doc: "when to call the webhook"},
		{Name: "compat", Kind: schema.Any, Later: true, Doc: "Slurm's variables, for imported scripts"},
	},
	Blocks: []schema.Block{
		{Name: "depends_on", Later: true, Doc: "a job that must have got so far"},
		{Name: "array", Later: true, Doc: "many independent elements of one spec"},
		{Name: "schedule", Later: true, Doc: "submits at these times"},
		{Name: "group", Label: "name", LabelAs: "Name", Field: "Groups", Many: true, Path: "groups", New: newGroup, Body: &groupTable,
			Doc: "equal ranks; needed for two or more roles"},
	},
})

// withGroup adds what a group may hold: a job without group blocks is its own group.
func withGroup(own schema.Body) schema.Body {
	implied := groupTable.Inside("Group")
	return schema.Body{Attrs: append(own.Attrs, implied.Attrs...), Blocks: append(own.Blocks, implied.Blocks...)}
}

var groupTable = schema.Body{
	Attrs: []schema.Attr{
		{Name: "count", Kind: schema.Int, Field: "Count", Default: "1", Doc: "ranks"},
		{Name: "mixed_models", Kind: schema.Bool, Field: "MixedModels", Default: "false", Doc: "lets ranks get different GPU models"},
		{Name: "preemptible", Kind: schema.Not, Field: "OnlyQuota", Default: "true",
			Doc: "false: runs only inside its queue's quota, never on borrowed GPUs"},
	},
	Blocks: []schema.Block{
		{Name: "topology", Flat: true, Body: &topologyTable, Doc: "how near to each other ranks must be"},
		{Name: "constraint", Field: "Constraints", Many: true, New: newConstraint, Body: &constraintTable, Doc: "must hold on a node"},
		{Name: "retry", Field: "Retry", Body: &retryTable, Doc: "which failures of the job itself start a new attempt"},
		{Name: "checkpoint", Field: "Checkpoint", Body: &checkpointTable, Doc: "how a job is asked to save itself"},
		{Name: "disconnect", Field: "Disconnect", Body: &disconnectTable, Doc: "what happens without contact to the servers"},
		{Name: "elastic", Later: true, Doc: "a range of sizes instead of count"},
		{Name: "affinity", Field: "Affinities", Many: true, Body: &affinityTable, Doc: "is welcome on a node"},
		{Name: "spread", Field: "Spreads", Many: true, Body: &spreadTable, Doc: "over nodes that differ in an attribute"},
		{Name: "hang", Later: true, Doc: "no progress for so long"},
		{Name: "idle", Later: true, Doc: "little GPU use for so long"},
		{Name: "port", Later: true, Doc: "a port of the node"},
		{Name: "service", Later: true, Doc: "takes requests from the router"},
		{Name: "scaling", Later: true, Doc: "a number of replicas that follows the load"},
		{Name: "update", Later: true, Doc: "how a new version replaces the old one"},
		{Name: "task", Label: "name", LabelAs: "Name", Field: "Tasks", Many: true, Path: "tasks", New: newTask, Body: &taskTable,
			Doc: "the process of each rank"},
	},
}

func newConstraint() any { return muster.Constraint{Operator: muster.OpEqual} }

var topologyTable = schema.Body{Attrs: []schema.Attr{
	{Name: "within", Field: "Within",
		Doc: "never spread wider than one: node, nvlink, or a label of the nodes (rack, zone, …); nodes without it don't qualify"},
	{Name: "prefer", Field: "Prefer", Doc: "a domain that is worth waiting for; the smallest that holds the gang when left out"},
	{Name: "patience", Kind: schema.Duration, Field: "Patience", Default: `"0s"`, Doc: "how long to wait for prefer before taking what there is"},
}}

var affinityTable = schema.Body{Attrs: []schema.Attr{
	{Name: "attribute", Field: "Attribute", Required: true, Doc: "node.* or label.*"},
	{Name: "value", Kind: schema.Scalar, Field: "Value", Required: true, Doc: "of the attribute"},
	{Name: "weight", Kind: schema.Int, Field: "Weight", Required: true, Doc: "-100 to 100; below 0 it is unwelcome"},
}}

var spreadTable = schema.Body{Attrs: []schema.Attr{
	{Name: "attribute", Field: "Attribute", Required: true, Doc: "node.* or label.*: ranks get nodes that differ in it"},
}}

var constraintTable = schema.Body{Attrs: []schema.Attr{
	{Name: "attribute", Field: "Attribute", Required: true, Doc: "node.* or label.*"},
	{Name: "operator", Field: "Operator", Default: `"="`, Words: operators(), Doc: "compares the attribute with the value"},
	{Name: "value", Kind: schema.Scalar, Field: "Value", Doc: "for in and not_in: values separated by commas"},
}}

func operators() []string {
	var words []string
	for _, o := range muster.Operators {
		words = append(words, string(o))
	}
	return words
}

var retryTable = schema.Body{Attrs: []schema.Attr{
	{Name: "attempts", Kind: schema.Int, Field: "Attempts", Default: "0", Doc: "more attempts"},
	{Name: "on", Kind: schema.Strings, Field: "On", Default: `["exit", "oom", "timeout"]`, Words: []string{"exit", "oom", "timeout"},
		Parse: parseClass, Positive: true, Doc: "which ends; what the cluster did is retried anyway"},
	{Name: "exit_codes", Kind: schema.Ints, Field: "ExitCodes", Positive: true, Doc: "any but success_codes when left out"},
	{Name: "delay", Kind: schema.Duration, Field: "Delay", Default: `"15s"`, Doc: "doubled with each attempt"},
	{Name: "max_delay", Kind: schema.Duration, Field: "MaxDelay", Default: `"10m"`, Doc: "the longest"},
}}

var checkpointTable = schema.Body{Attrs: []schema.Attr{
	{Name: "grace", Kind: schema.Duration, Field: "Grace", Default: `"0s"`, Doc: "between the request and kill_signal"},
	{Name: "signal", Field: "Signal", Doc: "sent in addition to the file MUSTER_STOP_FILE"},
	{Name: "to", Field: "To", Default: `"main"`, Words: []string{"main", "all"}, Parse: parseTarget, Doc: "which processes get the signal"},
	{Name: "every", Kind: schema.Duration, Field: "Every", Positive: true,
		Doc: "how often it saves by itself: bounds the work lost, when victims of a preemption are chosen"},
}}

var disconnectTable = schema.Body{Attrs: []schema.Attr{
	{Name: "stop_after", Kind: schema.Duration, Field: "StopAfter", Default: `"1m"`, Doc: "runs on so long without contact; at least 10s"},
	{Name: "replace", Field: "Replace", Default: `"after_stop"`, Words: []string{"after_stop", "immediately"},
		Parse: parseReplace, Doc: "when another may start elsewhere; immediately: at once (services without state)"},
}}

var taskTable = schema.Body{
	Attrs: []schema.Attr{
		{Name: "script", Kind: schema.Text, Field: "Script", Doc: "a program text; first line #!…, or /bin/bash -euo pipefail runs it"},
		{Name: "command", Kind: schema.Text, Field: "Command", Doc: "one program, found in PATH of the node"},
		{Name: "args", Kind: schema.Texts, Field: "Args", Doc: "its arguments"},
		{Name: "start", Field: "Start", Default: `"each"`, Words: []string{"each", "first"}, Parse: parseStart,
			Doc: "each rank runs it; first: rank 0 runs it, the others only hold their place (mpirun, ray)"},
		{Name: "dir", Kind: schema.Text, Field: "Dir", Doc: "the folder of the job file when left out; ${task.dir} is a fresh one"},
		{Name: "env", Kind: schema.TextMap, Field: "Env", Doc: "environment variables"},
		{Name: "env_from_file", Kind: schema.Strings, Field: "EnvFromFile", Positive: true,
			Doc: "files of NAME=VALUE lines, read on the node as the user; never stored or shown"},
		{Name: "upload", Kind: schema.Strings, Field: "Upload", Positive: true,
			Doc: "files and folders beside the job file, packed at submit (16 MiB, .gitignore obeyed) and unpacked into ${task.dir}, which becomes the default dir"},
		{Name: "user", Kind: schema.Any, Later: true, Doc: "who it runs as"},
		{Name: "image", Kind: schema.Any, Later: true, Doc: "makes it a container"},
		{Name: "mounts", Kind: schema.Any, Later: true, Doc: "of containers"},
		{Name: "kill_signal", Field: "KillSignal", Default: `"SIGTERM"`, Doc: "asks it to end"},
		{Name: "kill_timeout", Kind: schema.Duration, Field: "KillTimeout", Default: `"30s"`, Doc: "then SIGKILL to all its processes"},
		{Name: "success_codes", Kind: schema.Ints, Field: "SuccessCodes", Default: "[0]", Positive: true, Doc: "exit codes that are a success"},
		{Name: "lifecycle", Kind: schema.Any, Later: true, Doc: "main, prestart, sidecar or poststop"},
	},
	Blocks: []schema.Block{
		{Name: "logs", Field: "Logs", Body: &logsTable, Doc: "bounds what is kept of its output"},
		{Name: "artifact", Later: true, Doc: "a file fetched before the start"},
		{Name: "template", Later: true, Doc: "a file written before the start"},
		{Name: "resources", Field: "Resources", Body: &resourcesTable, Doc: "what one rank needs"},
	},
}

var logsTable = schema.Body{Attrs: []schema.Attr{
	{Name: "max_size", Kind: schema.Size, Field: "MaxSize", Default: `"100MiB"`, Doc: "of a segment"},
	{Name: "max_files", Kind: schema.Int, Field: "MaxFiles", Default: "5", Doc: "segments kept"},
	{Name: "path", Kind: schema.Text, Field: "Path", Doc: "also written there, as the user, as in \"logs/${job.name}-${job.id}.out\""},
}}

var resourcesTable = schema.Body{
	Attrs: []schema.Attr{
		{Name: "gpus", Kind: schema.Int, Field: "GPUs", Default: "0", Doc: "GPUs of a rank"},
		{Name: "cores", Kind: schema.Cores, Field: "MilliCores", Positive: true, Doc: "with GPUs their part of the node's when left out, else 1"},
		{Name: "memory", Kind: schema.Size, Field: "Memory", Positive: true,
			Doc: "with GPUs their part of 95 % of the node's when left out, else 4GiB; above it: killed, class oom"},
		{Name: "disk", Kind: schema.Size, Field: "Disk", Positive: true, Doc: "room on the node's disk"},
		{Name: "exclusive", Kind: schema.Bool, Field: "Exclusive", Default: "false", Doc: "the whole node"},
	},
	Blocks: []schema.Block{{Name: "gpu", Body: &gpuTable, Doc: "which GPUs"}},
}

var gpuTable = schema.Body{Attrs: []schema.Attr{
	{Name: "model", Kind: schema.Strings, Field: "Models", Positive: true, Doc: "any of; a whole word of the device's name, case ignored"},
	{Name: "min_memory", Kind: schema.Size, Field: "MinMemory", Positive: true, Doc: "the card's; nominal: 95 % of it is enough"},
	{Name: "share", Kind: schema.Share, Field: "Share", Default: "1", Doc: "a part of one GPU (gpus = 1 only)"},
	{Name: "mig", Field: "MIG", Doc: "a MIG slice of that profile, as in \"1g.10gb\""},
}}

func parseClass(s string) (any, error) {
	c, _ := muster.ParseClass(s) // a word of the table
	return c, nil
}

func parseTarget(s string) (any, error) {
	if s == "all" {
		return muster.ToAll, nil
	}
	return muster.ToMain, nil
}

func parseReplace(s string) (any, error) {
	if s == "immediately" {
		return muster.ReplaceImmediately, nil
	}
	return muster.ReplaceAfterStop, nil
}

func parseStart(s string) (any, error) {
	if s == "first" {
		return muster.StartFirst, nil
	}
	return muster.StartEach, nil
}
