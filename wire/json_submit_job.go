package wire

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhpc/muster"
)

// What a job in JSON may hold, block by block; the job file has the same names.

// namedJSON is a member of an object whose order counts: groups are numbered as they stand.
type namedJSON struct {
	name string
	raw  json.RawMessage
}

func (d *jsonReader) job(at string, raw json.RawMessage) *muster.JobSpec {
	spec := muster.DefaultJobSpec()
	spec.PriorityOfQueue = true
	implied := muster.DefaultGroup()
	var groups []namedJSON // nil: none was said
	own := ""              // a member that makes the job its own group
	known := keys{
		"name":  d.intoText(&spec.Name),
		"type":  func(at string, raw json.RawMessage) { d.word(at, raw, []string{"batch"}) },
		"queue": d.intoText(&spec.Queue),
		"priority": func(at string, raw json.RawMessage) {
			spec.Priority, spec.PriorityOfQueue = d.integer(at, raw), false
		},
		"time_limit": d.intoDuration(&spec.TimeLimit),
		"labels": func(at string, raw json.RawMessage) {
			d.each(at, raw, func(key, at string, raw json.RawMessage) {
				spec.Labels = append(spec.Labels, muster.Label{Key: key, Value: d.text(at, raw)})
			})
		},
		"group": func(at string, raw json.RawMessage) {
			groups = []namedJSON{}
			d.each(at, raw, func(key, _ string, raw json.RawMessage) { groups = append(groups, namedJSON{key, raw}) })
		},
		"start_after": notYet, "notify": notYet, "compat": notYet, "depends_on": notYet, "array": notYet, "schedule": notYet,
	}
	for name, read := range d.groupKeys(&implied) {
		known[name] = read
		if read != nil {
			known[name] = func(at string, raw json.RawMessage) { own = name; read(at, raw) }
		}
	}
	d.object(at, raw, known)
	if groups != nil && own != "" {
		d.fail(at+"."+own, "it stands beside group: write it into the group")
	}
	if groups == nil {
		spec.Groups = []muster.Group{implied}
		return &spec
	}
	for _, said := range groups {
		g := muster.DefaultGroup()
		g.Name = said.name
		d.object(at+".group."+said.name, said.raw, d.groupKeys(&g))
		spec.Groups = append(spec.Groups, g)
	}
	return &spec
}

func (d *jsonReader) groupKeys(g *muster.Group) keys {
	return keys{
		"count": d.intoInteger(&g.Count),
		"topology": d.block(keys{
			"within":   d.intoText(&g.Within),
			"prefer":   d.intoText(&g.Prefer),
			"patience": d.intoDuration(&g.Patience),
		}),
		"mixed_models": func(at string, raw json.RawMessage) { g.MixedModels = d.boolean(at, raw) },
		"preemptible":  func(at string, raw json.RawMessage) { g.OnlyQuota = !d.boolean(at, raw) },
		"affinity": func(at string, raw json.RawMessage) {
			for i, element := range d.list(at, raw) {
				var a muster.Affinity
				d.object(fmt.Sprintf("%s[%d]", at, i), element, keys{
					"attribute": d.intoText(&a.Attribute),
					"value":     d.intoText(&a.Value),
					"weight":    d.intoInteger(&a.Weight),
				})
				g.Affinities = append(g.Affinities, a)
			}
		},
		"spread": func(at string, raw json.RawMessage) {
			for i, element := range d.list(at, raw) {
				var s muster.Spread
				d.object(fmt.Sprintf("%s[%d]", at, i), element, keys{"attribute": d.intoText(&s.Attribute)})
				g.Spreads = append(g.Spreads, s)
			}
		},
		"constraint": func(at string, raw json.RawMessage) {
			for i, element := range d.list(at, raw) {
				c := muster.Constraint{Operator: muster.OpEqual}
				d.object(fmt.Sprintf("%s[%d]", at, i), element, keys{
					"attribute": d.intoText(&c.Attribute),
					"operator":  d.intoText((*string)(&c.Operator)),
					"value":     d.intoText(&c.Value),
				})
				g.Constraints = append(g.Constraints, c)
			}
		},
		"retry": d.block(keys{
			"attempts": d.intoInteger(&g.Retry.Attempts),
			"on": func(at string, raw json.RawMessage) {
				for i, element := range d.list(at, raw) {
					at := fmt.Sprintf("%s[%d]", at, i)
					class, ok := muster.ParseClass(d.text(at, element))
					if !ok || class == muster.ClassNone {
						d.fail(at, `it is not a choice: say one of "exit", "oom", "timeout"`)
					}
					g.Retry.On = append(g.Retry.On, class)
				}
			},
			"exit_codes": d.intoIntegers(&g.Retry.ExitCodes),
			"delay":      d.intoDuration(&g.Retry.Delay),
			"max_delay":  d.intoDuration(&g.Retry.MaxDelay),
		}),
		"checkpoint": d.block(keys{
			"grace":  d.intoDuration(&g.Checkpoint.Grace),
			"signal": d.intoText(&g.Checkpoint.Signal),
			"to": func(at string, raw json.RawMessage) {
				g.Checkpoint.To = muster.SignalTarget(d.word(at, raw, targetWords))
			},
			"every": d.intoDuration(&g.Checkpoint.Every),
		}),
		"disconnect": d.block(keys{
			"stop_after": d.intoDuration(&g.Disconnect.StopAfter),
			"replace": func(at string, raw json.RawMessage) {
				g.Disconnect.Replace = muster.Replace(d.word(at, raw, replaceWords))
			},
		}),
		"task": func(at string, raw json.RawMessage) {
			names := 0
			d.each(at, raw, func(key, at string, raw json.RawMessage) {
				if names++; names > 1 {
					d.fail(at, "a second task is not supported yet")
					return
				}
				g.Task.Name = key
				d.object(at, raw, d.taskKeys(&g.Task))
			})
		},
		"elastic": notYet, "hang": notYet, "idle": notYet, "port": notYet, "service": notYet, "scaling": notYet, "update": notYet,
	}
}

func (d *jsonReader) taskKeys(t *muster.Task) keys {
	return keys{
		"script":  d.intoText(&t.Script),
		"command": d.intoText(&t.Command),
		"args":    func(at string, raw json.RawMessage) { t.Args = d.texts(at, raw) },
		"dir":     func(at string, raw json.RawMessage) { t.Dir = d.taskDir(at, raw) },
		"env": func(at string, raw json.RawMessage) {
			d.each(at, raw, func(key, at string, raw json.RawMessage) {
				t.Env = append(t.Env, muster.EnvVar{Name: key, Value: d.text(at, raw)})
			})
			slices.SortFunc(t.Env, func(a, b muster.EnvVar) int { return strings.Compare(a.Name, b.Name) })
		},
		"kill_signal":   d.intoText(&t.KillSignal),
		"kill_timeout":  d.intoDuration(&t.KillTimeout),
		"success_codes": d.intoIntegers(&t.SuccessCodes),
		"logs": d.block(keys{
			"max_size":  d.intoBytes(&t.Logs.MaxSize),
			"max_files": d.intoInteger(&t.Logs.MaxFiles),
			"path":      d.intoText(&t.Logs.Path),
		}),
		"start":         func(at string, raw json.RawMessage) { t.Start = muster.Start(d.word(at, raw, startWords)) },
		"env_from_file": func(at string, raw json.RawMessage) { t.EnvFromFile = d.texts(at, raw) },
		"upload":        func(at string, raw json.RawMessage) { t.Upload = d.texts(at, raw) },
		"resources":     d.block(d.resourceKeys(&t.Resources)),
		"user":          notYet, "image": notYet, "mounts": notYet, "artifact": notYet, "template": notYet, "lifecycle": notYet,
	}
}

// taskDir reads a task's directory; the fresh one is "" inside.
func (d *jsonReader) taskDir(at string, raw json.RawMessage) string {
	dir := d.text(at, raw)
	if dir == "" {
		d.fail(at, "dir is empty: leave it out for a fresh directory")
	}
	if dir == "${task.dir}" {
		return ""
	}
	return dir
}

func (d *jsonReader) resourceKeys(r *muster.Resources) keys {
	return keys{
		"gpus": d.intoInteger(&r.GPUs),
		"cores": func(at string, raw json.RawMessage) {
			cores, ok := parseCores(string(raw))
			if !ok || cores == 0 {
				d.fail(at, "a number of cores above 0 is expected, with at most three decimals")
			}
			r.MilliCores = cores
		},
		"memory": func(at string, raw json.RawMessage) {
			if d.intoBytes(&r.Memory)(at, raw); r.Memory == 0 {
				d.fail(at, "memory is not above 0")
			}
		},
		"exclusive": func(at string, raw json.RawMessage) { r.Exclusive = d.boolean(at, raw) },
		"gpu": d.block(keys{
			"model":      func(at string, raw json.RawMessage) { r.Models = d.texts(at, raw) },
			"min_memory": d.intoBytes(&r.MinMemory),
			"mig":        d.intoText(&r.MIG),
			"share": func(at string, raw json.RawMessage) {
				share, ok := parseCores(string(raw))
				if !ok || share == 0 || share > 1000 {
					d.fail(at, "a part of a GPU is expected, as in 0.5, with at most three decimals")
				}
				if share < 1000 {
					r.Share = muster.MilliGPUs(share)
				}
			},
		}),
		"disk": d.intoBytes(&r.Disk),
	}
}

func (d *jsonReader) block(known keys) func(string, json.RawMessage) {
	return func(at string, raw json.RawMessage) { d.object(at, raw, known) }
}

func (d *jsonReader) intoText(into *string) func(string, json.RawMessage) {
	return func(at string, raw json.RawMessage) { *into = d.text(at, raw) }
}

func (d *jsonReader) intoInteger(into *int) func(string, json.RawMessage) {
	return func(at string, raw json.RawMessage) { *into = d.integer(at, raw) }
}

func (d *jsonReader) intoIntegers(into *[]int) func(string, json.RawMessage) {
	return func(at string, raw json.RawMessage) { *into = d.integers(at, raw) }
}

func (d *jsonReader) intoDuration(into *time.Duration) func(string, json.RawMessage) {
	return func(at string, raw json.RawMessage) {
		text := decodeJSON[string](d, at, `a duration in quotes, as in "90s", "4h" or "3d",`, raw)
		if d.err != nil {
			return
		}
		v, err := muster.ParseDuration(text)
		if err != nil {
			d.fail(at, "%v", err)
		}
		*into = v
	}
}

func (d *jsonReader) intoBytes(into *muster.Bytes) func(string, json.RawMessage) {
	return func(at string, raw json.RawMessage) {
		text := decodeJSON[string](d, at, `a size in quotes, as in "64GiB",`, raw)
		if d.err != nil {
			return
		}
		v, err := muster.ParseBytes(text)
		if err != nil {
			d.fail(at, "%v", err)
		}
		*into = v
	}
}
