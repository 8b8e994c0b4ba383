package jobfile

import "github.com/musterhpc/muster/config/schema"

const (
	number   = `\d+`
	words    = `"[^"$%]*"`
	whereGPU = "GPUs of a rank are asked for in the task's resources:"
)

// hints are the words of Nomad, Slurm and Kubernetes, and what muster says instead. A test parses the HCL that
// they show.
var hints = []schema.Hint{
	// Nomad
	{Word: "driver", Say: "A task with command or script is a process; there is no driver to choose. Write", HCL: `command = "python"`},
	{Word: "config", Say: "What a driver's config says stands in the task itself:", HCL: `command = "python"`},
	{Word: "device", Say: whereGPU, HCL: "resources {\n  gpus = 1\n}"},
	{Word: "reschedule", Say: "What the cluster did is retried anyway; for what the job did there is", HCL: "retry {\n  attempts = 3\n}"},
	{Word: "restart", Say: "What the cluster did is retried anyway; for what the job did there is", HCL: "retry {\n  attempts = 3\n}"},
	{Word: "periodic", Say: "A job that starts at set times has a schedule block, which is not supported yet."},
	{Word: "parameterized", Say: "Values given at submit are variables, which are not supported yet."},
	{Word: "datacenters", Say: "A cluster is one place; to choose nodes write", HCL: "constraint {\n  attribute = \"label.zone\"\n  value     = \"eu-1\"\n}"},
	{Word: "region", Say: "A cluster is one place; to choose nodes write", HCL: "constraint {\n  attribute = \"label.zone\"\n  value     = \"eu-1\"\n}"},
	{Word: "node_pool", Say: "Nodes are chosen by their labels:", HCL: "constraint {\n  attribute = \"label.pool\"\n  value     = \"a\"\n}"},
	{Word: "namespace", Say: "Work is parted by queues:", HCL: "queue = %s", Example: `"default"`},
	{Word: "max_client_disconnect", Say: "How long a job runs on without contact is", HCL: "disconnect {\n  stop_after = %s\n}", Example: `"60s"`, Fits: words},
	{Word: "network", Say: "Ports are asked for with port blocks, which are not supported yet; ranks find each other by MUSTER_NODE_IPS."},
	{Word: "meta", Say: "Keys and values to find jobs by are", HCL: "labels = {\n  team = \"nlp\"\n}"},
	{Word: "kill_grace", Say: "The time between the kill signal and SIGKILL is", HCL: "kill_timeout = %s", Example: `"30s"`, Fits: words},
	{Word: "memory_max", Say: "Memory has one limit:", HCL: "memory = %s", Example: `"64GiB"`},

	{In: "gpu", Word: "count", Say: "The number of GPUs of a rank is, in resources,", HCL: "gpus = %s", Example: "1", Fits: number},

	// Slurm
	{Word: "nodes", Say: "The number of ranks is", HCL: "count = %s", Example: "2", Fits: number},
	{Word: "ntasks", Say: "The number of ranks is", HCL: "count = %s", Example: "2", Fits: number},
	{Word: "tasks", Say: "The number of ranks is", HCL: "count = %s", Example: "2", Fits: number},
	{Word: "ntasks_per_node", Say: "Ranks are not counted by node; on one node they stay with", HCL: "topology {\n  within = \"node\"\n}"},
	{Word: "partition", Say: "A queue is named by", HCL: "queue = %s", Example: `"default"`},
	{Word: "account", Say: "Work is accounted by queue:", HCL: "queue = %s", Example: `"default"`},
	{Word: "qos", Say: "Jobs of a queue are ordered by", HCL: "priority = %s", Example: "60", Fits: number},
	{Word: "nice", Say: "Jobs of a queue are ordered by", HCL: "priority = %s", Example: "40"},
	{Word: "gres", Say: whereGPU, HCL: "resources {\n  gpus = 1\n}"},
	{Word: "gpus_per_node", Say: whereGPU, HCL: "resources {\n  gpus = %s\n}", Example: "8", Fits: number},
	{Word: "gpus_per_task", Say: whereGPU, HCL: "resources {\n  gpus = %s\n}", Example: "1", Fits: number},
	{Word: "time", Say: "The longest time an attempt may run is", HCL: "time_limit = %s", Example: `"4h"`, Fits: `"\d+[smhd]"`},
	{Word: "timeout", Say: "The longest time an attempt may run is", HCL: "time_limit = %s", Example: `"4h"`, Fits: `"\d+[smhd]"`},
	{Word: "walltime", Say: "The longest time an attempt may run is", HCL: "time_limit = %s", Example: `"4h"`, Fits: `"\d+[smhd]"`},
	{Word: "mem", Say: "The memory of a rank is, in the task's resources,", HCL: "memory = %s", Example: `"64GiB"`, Fits: `"\d+[KMGT]i?B"`},
	{Word: "mem_per_cpu", Say: "The memory of a rank is, in the task's resources,", HCL: "memory = %s", Example: `"64GiB"`},
	{Word: "cpus", Say: "The cores of a rank are, in the task's resources,", HCL: "cores = %s", Example: "16", Fits: number},
	{Word: "cpu", Say: "The cores of a rank are, in the task's resources,", HCL: "cores = %s", Example: "16", Fits: `\d{1,3}`},
	{Word: "cpus_per_task", Say: "The cores of a rank are, in the task's resources,", HCL: "cores = %s", Example: "16", Fits: number},
	{Word: "output", Say: "The output is kept by muster: see it with  muster logs JOB. To write it elsewhere too, redirect it in the script."},
	{Word: "error", Say: "The output is kept by muster: see it with  muster logs JOB --stderr. To write it elsewhere too, redirect it in the script."},
	{Word: "chdir", Say: "The working directory is, in the task,", HCL: "dir = %s", Example: `"/data/train"`, Fits: words},
	{Word: "workdir", Say: "The working directory is, in the task,", HCL: "dir = %s", Example: `"/data/train"`, Fits: words},
	{Word: "nodelist", Say: "Nodes are chosen by", HCL: "constraint {\n  attribute = \"node.name\"\n  operator  = \"in\"\n  value     = \"gpu-01,gpu-02\"\n}"},
	{Word: "exclude", Say: "Nodes are kept out by", HCL: "constraint {\n  attribute = \"node.name\"\n  operator  = \"not_in\"\n  value     = \"gpu-07\"\n}"},
	{Word: "dependency", Say: "What must be done before is said by depends_on blocks, which are not supported yet."},
	{Word: "requeue", Say: "What the cluster did is retried anyway; for what the job did there is", HCL: "retry {\n  attempts = 3\n}"},
	{Word: "begin", Say: "A time before which a job waits is start_after, which is not supported yet."},
	{Word: "mail_type", Say: "Who is told of a job is said by notify, which is not supported yet."},
	{Word: "job_name", Say: "A job's name is its label:", HCL: "job \"train\" {\n}"},

	// Kubernetes
	{Word: "replicas", Say: "The number of ranks is", HCL: "count = %s", Example: "2", Fits: number},
	{Word: "parallelism", Say: "The number of ranks is", HCL: "count = %s", Example: "2", Fits: number},
	{Word: "completions", Say: "Many independent elements are an array, which is not supported yet; ranks that start together are", HCL: "count = %s", Example: "2", Fits: number},
	{Word: "containers", Say: "What runs is a task:", HCL: "task \"main\" {\n  command = \"python\"\n}"},
	{Word: "container", Say: "What runs is a task:", HCL: "task \"main\" {\n  command = \"python\"\n}"},
	{Word: "limits", Say: "What a rank needs stands in resources itself:", HCL: "resources {\n  memory = \"64GiB\"\n}"},
	{Word: "requests", Say: "What a rank needs stands in resources itself:", HCL: "resources {\n  memory = \"64GiB\"\n}"},
	{Word: "node_selector", Say: "Nodes are chosen by their labels:", HCL: "constraint {\n  attribute = \"label.zone\"\n  value     = \"eu-1\"\n}"},
	{Word: "nodeSelector", Say: "Nodes are chosen by their labels:", HCL: "constraint {\n  attribute = \"label.zone\"\n  value     = \"eu-1\"\n}"},
	{Word: "backoffLimit", Say: "More attempts after the job's own failures are", HCL: "retry {\n  attempts = 3\n}"},
	{Word: "restartPolicy", Say: "More attempts after the job's own failures are", HCL: "retry {\n  attempts = 3\n}"},
	{Word: "activeDeadlineSeconds", Say: "The longest time an attempt may run is", HCL: "time_limit = %s", Example: `"4h"`},
	{Word: "terminationGracePeriodSeconds", Say: "The time between the kill signal and SIGKILL is", HCL: "kill_timeout = %s", Example: `"30s"`},
	{Word: "workingDir", Say: "The working directory is, in the task,", HCL: "dir = %s", Example: `"/data/train"`, Fits: words},
	{Word: "apiVersion", Say: "muster reads job blocks:", HCL: "job \"train\" {\n}"},
	{Word: "kind", Say: "muster reads job blocks:", HCL: "job \"train\" {\n}"},
	{Word: "metadata", Say: "A job's name is its label, and keys and values to find it by are", HCL: "labels = {\n  team = \"nlp\"\n}"},
	{Word: "spec", Say: "What a spec holds stands in the job itself."},
}
