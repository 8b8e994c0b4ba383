package config

import (
	"github.com/musterhpc/muster/config/schema"
)

// agentTable is the whole grammar of the agent's file.
var agentTable = schema.Body{
	Attrs: []schema.Attr{
		{Name: "name", Field: "Name", Doc: "of this machine; the host's name when left out"},
		{Name: "data_dir", Field: "DataDir", Doc: "everything the agent keeps"},
		{Name: "bind", Field: "Bind", Default: `"127.0.0.1"`, Doc: "the IP, or a go-sockaddr template of it"},
		{Name: "cluster", Field: "Cluster", Doc: "the cluster's name"},
		{Name: "join", Kind: schema.Strings, Field: "Join", Doc: "gossip addresses of other agents; port 4692 unless given"},
		{Name: "insecure", Kind: schema.Bool, Field: "Insecure", Default: "false", Doc: "listen beyond loopback without certificates"},
	},
	Blocks: []schema.Block{
		{Name: "log", Field: "Log", Body: &schema.Body{Attrs: []schema.Attr{
			{Name: "level", Field: "Level", Default: `"info"`, Words: []string{"trace", "debug", "info", "warn", "error"}, Doc: "how much is said"},
			{Name: "format", Field: "Format", Default: `"text"`, Words: []string{"text", "json"}, Doc: "of a line"},
		}}},
		{Name: "server", Field: "Server", New: newServer, Doc: "makes the agent a server", Body: &schema.Body{Attrs: []schema.Attr{
			{Name: "expect", Kind: schema.Int, Field: "Expect", Default: "1", Doc: "servers that must see each other before they make a new cluster"},
			{Name: "voters", Kind: schema.Int, Field: "Voters", Doc: "servers that vote at most; as expect when left out"},
			{Name: "webhook", Kind: schema.Any, Later: true, Doc: "for a job's notify"},
			{Name: "checkpoints", Field: "Checkpoints", Doc: "a folder that all nodes see, for MUSTER_CHECKPOINT_DIR; each node's own disk when left out"},
		}}},
		{Name: "worker", Field: "Worker", New: newWorker, Doc: "makes the agent a worker", Body: &workerTable},
		{Name: "raft", Field: "Raft", Body: &schema.Body{Attrs: []schema.Attr{
			{Name: "timing", Field: "Timing", Default: `"lan"`, Words: []string{"lan", "wan"}, Doc: "how far servers are from each other"},
		}}},
		{Name: "ports", Field: "Ports", Body: &schema.Body{Attrs: []schema.Attr{
			{Name: "http", Kind: schema.Int, Field: "HTTP", Default: "4690", Doc: "API, metrics; 0 lets the system choose"},
			{Name: "rpc", Kind: schema.Int, Field: "RPC", Default: "4691", Doc: "gRPC and Raft"},
			{Name: "gossip", Kind: schema.Int, Field: "Gossip", Default: "4692", Doc: "TCP and UDP"},
		}}},
	},
}

var workerTable = schema.Body{
	Attrs: []schema.Attr{
		{Name: "cost_per_hour", Kind: schema.Money, Field: "CostPerHour", Default: "0", Doc: "of the whole node"},
		{Name: "labels", Kind: schema.Map, Field: "Labels", Doc: "for topology and constraints"},
		{Name: "users", Kind: schema.Any, Later: true, Doc: "who may be run as"},
		{Name: "allow_root", Kind: schema.Bool, Field: "AllowRoot", Default: "false", Doc: "run tasks as root when the agent is root"},
		{Name: "gpu_ids", Field: "GPUIDs", Default: `"auto"`, Words: []string{"auto"}, Unbuilt: []string{"index", "uuid"}, Doc: "what CUDA_VISIBLE_DEVICES holds"},
		{Name: "mounts", Kind: schema.Any, Later: true, Doc: "what containers may mount"},
		{Name: "port_range", Field: "PortRange", Parse: parsePortRange, Default: `"20000-29999"`, Doc: "ports of tasks"},
		{Name: "require", Kind: schema.Any, Later: true, Doc: "what the host must give"},
	},
	Blocks: []schema.Block{
		{Name: "gpus", Field: "GPUs", Body: &schema.Body{Attrs: []schema.Attr{
			{Name: "simulate", Kind: schema.Int, Field: "Simulate", Default: "0", Doc: "GPUs that do not exist, for trying muster"},
			{Name: "model", Field: "Model", Default: `"H100"`, Doc: "of simulated GPUs"},
			{Name: "cores", Kind: schema.Cores, Field: "Cores", Default: "64", Positive: true, Doc: "announced with simulated GPUs, for placement only"},
			{Name: "memory", Kind: schema.Size, Field: "Memory", Default: `"512GiB"`, Positive: true, Doc: "likewise"},
		}}},
		{Name: "reserve", Field: "Reserve", Doc: "kept for the host", Body: &schema.Body{Attrs: []schema.Attr{
			{Name: "cores", Kind: schema.Cores, Field: "Cores", Default: "0", Doc: "of the host's"},
			{Name: "memory", Kind: schema.Size, Field: "Memory", Default: `"0B"`, Doc: "of the host's"},
		}}},
	},
}

var agentHints = []schema.Hint{
	{Word: "datacenter", Say: "Where a machine stands is a label of its worker:", HCL: "worker {\n  labels = {\n    zone = \"eu-1\"\n  }\n}"},
	{Word: "region", Say: "Where a machine stands is a label of its worker:", HCL: "worker {\n  labels = {\n    zone = \"eu-1\"\n  }\n}"},
	{Word: "client", Say: "A machine that runs tasks has a block", HCL: "worker {\n}"},
	{Word: "bind_addr", Say: "The address is", HCL: "bind = %s", Example: `"{{ GetPrivateIP }}"`, Fits: `"[^"$%]*"`},
	{Word: "bootstrap_expect", Say: "The number of servers to wait for is, in the server block,", HCL: "expect = %s", Example: "3", Fits: `\d+`},
	{Word: "retry_join", Say: "Other agents are named by", HCL: "join = %s", Example: `["s1.lab"]`, Fits: `\["[^$%\n]*"\]`},
	{Word: "log_level", Say: "How much is said is", HCL: "log {\n  level = %s\n}", Example: `"info"`, Fits: `"[a-z]+"`},
}
