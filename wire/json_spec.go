package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster"
)

// Schema names the JSON forms; they only ever grow.
const Schema = "muster.v1"

// A job spec in JSON has the job file's names, with durations and sizes as its strings. Labelled blocks are objects keyed by
// label, other blocks are objects, and those that may be repeated are lists. A job without group blocks is its own group.

// JobSpecJSON is a job block.
type JobSpecJSON struct {
	Name      string            `json:"name"`
	Type      string            `json:"type"`
	Queue     string            `json:"queue"`
	Priority  *int              `json:"priority,omitempty"` // none: the queue's
	TimeLimit string            `json:"time_limit,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Group     GroupsJSON        `json:"group,omitempty"`
	*GroupJSON
}

// GroupJSON is a group block, or the part of a job block that it replaces.
type GroupJSON struct {
	Count       int                 `json:"count"`
	MixedModels bool                `json:"mixed_models,omitempty"`
	Preemptible *bool               `json:"preemptible,omitempty"` // absent: true
	Topology    *TopologyJSON       `json:"topology,omitempty"`
	Constraint  []ConstraintJSON    `json:"constraint,omitempty"`
	Affinity    []AffinityJSON      `json:"affinity,omitempty"`
	Spread      []SpreadJSON        `json:"spread,omitempty"`
	Retry       RetryJSON           `json:"retry"`
	Checkpoint  *CheckpointJSON     `json:"checkpoint,omitempty"`
	Disconnect  DisconnectJSON      `json:"disconnect"`
	Task        map[string]TaskJSON `json:"task"`

	place int // among the groups of its job
}

// TopologyJSON is a topology block.
type TopologyJSON struct {
	Within   string `json:"within,omitempty"`
	Prefer   string `json:"prefer,omitempty"`
	Patience string `json:"patience,omitempty"`
}

// AffinityJSON is an affinity block.
type AffinityJSON struct {
	Attribute string `json:"attribute"`
	Value     string `json:"value"`
	Weight    int    `json:"weight"`
}

// SpreadJSON is a spread block.
type SpreadJSON struct {
	Attribute string `json:"attribute"`
}

// ConstraintJSON is a constraint block.
type ConstraintJSON struct {
	Attribute string `json:"attribute"`
	Operator  string `json:"operator"`
	Value     string `json:"value,omitempty"`
}

// RetryJSON is a retry block.
type RetryJSON struct {
	Attempts  int      `json:"attempts"`
	On        []string `json:"on,omitempty"`
	ExitCodes []int    `json:"exit_codes,omitempty"`
	Delay     string   `json:"delay"`
	MaxDelay  string   `json:"max_delay"`
}

// CheckpointJSON is a checkpoint block.
type CheckpointJSON struct {
	Grace  string `json:"grace"`
	Signal string `json:"signal,omitempty"`
	To     string `json:"to"`
	Every  string `json:"every,omitempty"`
}

// DisconnectJSON is a disconnect block.
type DisconnectJSON struct {
	StopAfter string `json:"stop_after"`
	Replace   string `json:"replace"`
}

// TaskJSON is a task block.
type TaskJSON struct {
	Script       string            `json:"script,omitempty"`
	Command      string            `json:"command,omitempty"`
	Args         []string          `json:"args,omitempty"`
	Start        string            `json:"start,omitempty"` // absent: each
	Dir          string            `json:"dir,omitempty"`   // absolute; absent: ${task.dir}
	Env          map[string]string `json:"env,omitempty"`
	EnvFromFile  []string          `json:"env_from_file,omitempty"`
	Upload       []string          `json:"upload,omitempty"`
	KillSignal   string            `json:"kill_signal"`
	KillTimeout  string            `json:"kill_timeout"`
	SuccessCodes []int             `json:"success_codes"`
	Logs         TaskLogsJSON      `json:"logs"`
	Resources    ResourcesJSON     `json:"resources"`
}

// TaskLogsJSON is a logs block.
type TaskLogsJSON struct {
	MaxSize  string `json:"max_size"`
	MaxFiles int    `json:"max_files"`
	Path     string `json:"path,omitempty"`
}

// ResourcesJSON is a resources block. Without cores and memory they are the GPUs' part of the node.
type ResourcesJSON struct {
	GPUs      int         `json:"gpus"`
	Cores     json.Number `json:"cores,omitempty"`
	Memory    string      `json:"memory,omitempty"`
	Disk      string      `json:"disk,omitempty"`
	Exclusive bool        `json:"exclusive"`
	GPU       *GPUAskJSON `json:"gpu,omitempty"`
}

// GPUAskJSON is a gpu block: which GPUs.
type GPUAskJSON struct {
	Model     []string    `json:"model,omitempty"`
	MinMemory string      `json:"min_memory,omitempty"`
	Share     json.Number `json:"share,omitempty"`
	MIG       string      `json:"mig,omitempty"`
}

// The words that stand for enumerations in JSON, by value.
var (
	targetWords  = []string{"main", "all"}
	replaceWords = []string{"after_stop", "immediately"}
	startWords   = []string{"each", "first"}
)

// SpecsJSON gives specs as {"schema": "muster.v1", "jobs": […]}: what validate -o json prints and POST /v1/jobs takes.
func SpecsJSON(specs ...*JobSpec) ([]byte, error) {
	jobs := make([]JobSpecJSON, len(specs))
	for i, x := range specs {
		spec, err := x.Domain()
		if err != nil {
			return nil, err
		}
		jobs[i] = JobSpecJSONOf(spec)
	}
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false) // scripts are full of < > &
	encoder.SetIndent("", "  ")
	err := encoder.Encode(struct {
		Schema string        `json:"schema"`
		Jobs   []JobSpecJSON `json:"jobs"`
	}{Schema, jobs})
	return []byte(strings.TrimSuffix(out.String(), "\n")), err
}

// JobSpecJSONOf gives the JSON form of a spec.
func JobSpecJSONOf(s *muster.JobSpec) JobSpecJSON {
	out := JobSpecJSON{
		Name:      s.Name,
		Type:      "batch", // the only type that Validate takes
		Queue:     s.Queue,
		Priority:  &s.Priority,
		TimeLimit: unlessZero(s.TimeLimit, muster.FormatDuration),
		Labels:    labelMap(s.Labels),
	}
	if s.PriorityOfQueue {
		out.Priority = nil
	}
	if len(s.Groups) == 1 && s.Groups[0].Name == s.Name {
		g := groupJSONOf(&s.Groups[0])
		out.GroupJSON = &g
		return out
	}
	out.Group = GroupsJSON{}
	for i := range s.Groups {
		g := groupJSONOf(&s.Groups[i])
		g.place = i
		out.Group[s.Groups[i].Name] = g
	}
	return out
}

// GroupsJSON are the groups of a job by name. They are written in the order of the job: the first one's rank 0 is the master.
type GroupsJSON map[string]GroupJSON

// MarshalJSON writes an object whose members keep the job's order.
func (g GroupsJSON) MarshalJSON() ([]byte, error) {
	names := slices.SortedFunc(maps.Keys(g), func(a, b string) int { return cmp.Compare(g[a].place, g[b].place) })
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false) // whoever writes the whole decides
	for i, name := range names {
		out.WriteByte("{,"[min(i, 1)])
		if err := encoder.Encode(name); err != nil {
			return nil, err
		}
		out.WriteByte(':')
		if err := encoder.Encode(g[name]); err != nil {
			return nil, err
		}
	}
	if len(names) == 0 {
		out.WriteByte('{')
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

func groupJSONOf(g *muster.Group) GroupJSON {
	out := GroupJSON{
		Count: g.Count,
		Retry: RetryJSON{
			Attempts:  g.Retry.Attempts,
			ExitCodes: g.Retry.ExitCodes,
			Delay:     muster.FormatDuration(g.Retry.Delay),
			MaxDelay:  muster.FormatDuration(g.Retry.MaxDelay),
		},
		Disconnect: DisconnectJSON{StopAfter: muster.FormatDuration(g.Disconnect.StopAfter), Replace: replaceWords[g.Disconnect.Replace]},
		Task:       map[string]TaskJSON{g.Task.Name: taskJSONOf(&g.Task)},
	}
	for _, class := range g.Retry.On {
		out.Retry.On = append(out.Retry.On, class.String())
	}
	out.MixedModels = g.MixedModels
	if g.OnlyQuota {
		out.Preemptible = new(bool)
	}
	if g.Within != "" || g.Prefer != "" {
		out.Topology = &TopologyJSON{Within: g.Within, Prefer: g.Prefer, Patience: unlessZero(g.Patience, muster.FormatDuration)}
	}
	for _, a := range g.Affinities {
		out.Affinity = append(out.Affinity, AffinityJSON(a))
	}
	for _, s := range g.Spreads {
		out.Spread = append(out.Spread, SpreadJSON(s))
	}
	for _, c := range g.Constraints {
		out.Constraint = append(out.Constraint, ConstraintJSON{Attribute: c.Attribute, Operator: string(c.Operator), Value: c.Value})
	}
	if g.Checkpoint != (muster.Checkpoint{}) {
		out.Checkpoint = &CheckpointJSON{
			Grace: muster.FormatDuration(g.Checkpoint.Grace), Signal: g.Checkpoint.Signal, To: targetWords[g.Checkpoint.To],
			Every: unlessZero(g.Checkpoint.Every, muster.FormatDuration)}
	}
	return out
}

func taskJSONOf(t *muster.Task) TaskJSON {
	out := TaskJSON{
		Script:       t.Script,
		Command:      t.Command,
		Args:         t.Args,
		Dir:          t.Dir,
		EnvFromFile:  t.EnvFromFile,
		Upload:       t.Upload,
		KillSignal:   t.KillSignal,
		KillTimeout:  muster.FormatDuration(t.KillTimeout),
		SuccessCodes: t.SuccessCodes,
		Logs:         TaskLogsJSON{MaxSize: t.Logs.MaxSize.String(), MaxFiles: t.Logs.MaxFiles, Path: t.Logs.Path},
		Resources: ResourcesJSON{
			GPUs:      t.Resources.GPUs,
			Cores:     json.Number(unlessZero(t.Resources.MilliCores, muster.MilliCores.String)),
			Memory:    unlessZero(t.Resources.Memory, muster.Bytes.String),
			Disk:      unlessZero(t.Resources.Disk, muster.Bytes.String),
			Exclusive: t.Resources.Exclusive,
		},
	}
	if t.Start != muster.StartEach {
		out.Start = startWords[t.Start]
	}
	if len(t.Env) > 0 {
		out.Env = map[string]string{}
		for _, e := range t.Env {
			out.Env[e.Name] = e.Value
		}
	}
	if r := &t.Resources; len(r.Models) > 0 || r.MinMemory > 0 || r.Share > 0 || r.MIG != "" {
		out.Resources.GPU = &GPUAskJSON{Model: r.Models, MinMemory: unlessZero(r.MinMemory, muster.Bytes.String),
			Share: json.Number(unlessZero(r.Share, muster.MilliGPUs.String)), MIG: r.MIG}
	}
	return out
}

func labelMap(labels []muster.Label) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	out := make(map[string]string, len(labels))
	for _, l := range labels {
		out[l.Key] = l.Value
	}
	return out
}

func unlessZero[T time.Duration | muster.Bytes | muster.MilliCores | muster.MilliGPUs](v T, format func(T) string) string {
	if v == 0 {
		return ""
	}
	return format(v)
}

// parseCores reads a number of cores with at most three decimals, as text of JSON or HCL: "16", "0.5".
func parseCores(text string) (muster.MilliCores, bool) {
	whole, part, _ := strings.Cut(text, ".")
	if len(part) > 3 {
		if strings.Trim(part[3:], "0") != "" {
			return 0, false
		}
		part = part[:3]
	}
	n, err := strconv.ParseUint(whole+part+"000"[len(part):], 10, 48)
	return muster.MilliCores(n), err == nil
}
