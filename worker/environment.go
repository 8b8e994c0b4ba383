package worker

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/worker/step"
)

// Facts are what a task is told about where it runs.
type Facts struct {
	Node       string // name
	IP         string // that other ranks reach the node by
	GPUs       []muster.GPU
	User       string // that tasks run as
	Home       string
	Shell      string
	TaskDir    string
	Checkpoint string          // directory that is kept over the attempts
	Interface  string          // network interface of the route to the master; "" = not known
	FromFiles  []muster.EnvVar // what env_from_file's files say
	Deadline   time.Time       // the latest moment at which the attempt ends by its time limit; zero = no limit
}

const taskPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// controlDir is where a task directory holds what is muster's own.
const controlDir = ".muster"

func (f *Facts) tempDir() string      { return filepath.Join(f.TaskDir, "tmp") }
func (f *Facts) stopFile() string     { return filepath.Join(f.TaskDir, controlDir, "stop") }
func (f *Facts) progressFile() string { return filepath.Join(f.TaskDir, controlDir, "progress") }
func (f *Facts) hostFile() string     { return filepath.Join(f.TaskDir, controlDir, "hostfile") }

// makes says whether dir is one that setUp makes, or lies in one. (The task directory itself a supervisor makes too.)
func (f *Facts) makes(dir string) bool {
	return dir == f.Checkpoint || strings.HasPrefix(dir, f.Checkpoint+"/") || strings.HasPrefix(dir, f.TaskDir+"/")
}

// environment is an ordered set of variables: a name that is set again keeps its place and gets the new value.
type environment struct {
	vars  []muster.EnvVar
	index map[string]int
}

func (e *environment) set(name, value string) {
	if i, ok := e.index[name]; ok {
		e.vars[i].Value = value
		return
	}
	e.index[name] = len(e.vars)
	e.vars = append(e.vars, muster.EnvVar{Name: name, Value: value})
}

func (e *environment) setInt(name string, value int) { e.set(name, strconv.Itoa(value)) }

// Environment is what a task finds: ours first, then those of env_from_file, then env: the later one wins. It is a pure function of its arguments.
func Environment(a *step.Assignment, f *Facts) ([]muster.EnvVar, error) {
	if err := a.Check(); err != nil {
		return nil, err
	}
	e := &environment{index: map[string]int{}}
	setUser(e, f)
	setMuster(e, a, f)
	setGPUs(e, a, f)
	setLaunchers(e, a, f)
	for _, v := range f.FromFiles {
		e.set(v.Name, v.Value)
	}
	lookup := RuntimeValues(a, f)
	for _, v := range a.Of().Task.Env {
		value, err := muster.Expand(v.Value, lookup)
		if err != nil {
			return nil, fmt.Errorf("env %s: %w", v.Name, err)
		}
		e.set(v.Name, value)
	}
	return e.vars, nil
}

// RuntimeValues looks up what ${…} in a task's text may refer to: muster.RuntimeNames.
func RuntimeValues(a *step.Assignment, f *Facts) func(name string) (string, bool) {
	g := a.Of()
	values := map[string]string{
		"job.id":         a.Alloc.Job.String(),
		"job.name":       a.JobName,
		"attempt":        strconv.FormatUint(uint64(a.Alloc.Attempt), 10),
		"group":          g.Name,
		"rank":           strconv.Itoa(a.Alloc.Rank),
		"ranks":          strconv.Itoa(g.Count),
		"node.name":      f.Node,
		"node.ip":        f.IP,
		"task.dir":       f.TaskDir,
		"checkpoint.dir": f.Checkpoint,
	}
	return func(name string) (string, bool) {
		v, ok := values[name]
		return v, ok
	}
}

func setUser(e *environment, f *Facts) {
	e.set("PATH", taskPath)
	e.set("HOME", f.Home)
	e.set("USER", f.User)
	e.set("LOGNAME", f.User)
	e.set("SHELL", f.Shell)
	e.set("LANG", "C.UTF-8")
	e.set("TMPDIR", f.tempDir())
}

func setMuster(e *environment, a *step.Assignment, f *Facts) {
	g := a.Of()
	e.set("MUSTER_JOB_ID", a.Alloc.Job.String())
	e.set("MUSTER_JOB_NAME", a.JobName)
	e.set("MUSTER_QUEUE", a.Queue)
	e.set("MUSTER_GROUP", g.Name)
	e.setInt("MUSTER_ATTEMPT", int(a.Alloc.Attempt))
	e.setInt("MUSTER_RANK", a.Alloc.Rank)
	e.setInt("MUSTER_RANKS", g.Count)
	e.set("MUSTER_NODE", f.Node)
	e.set("MUSTER_NODE_IPS", addresses(a.Peers))
	if len(a.Spec.Groups) > 1 {
		for i := range a.Spec.Groups {
			e.set("MUSTER_IPS_"+variable(a.Spec.Groups[i].Name), addresses(a.Ranks(i)))
		}
	}
	e.set("MUSTER_HOSTFILE", f.hostFile())
	if master := a.Peers[0]; master.Port != 0 {
		e.set("MUSTER_MASTER_ADDR", master.IP)
		e.setInt("MUSTER_MASTER_PORT", int(master.Port))
	}
	if !f.Deadline.IsZero() {
		e.set("MUSTER_DEADLINE", f.Deadline.UTC().Format(time.RFC3339))
	}
	e.set("MUSTER_TASK_DIR", f.TaskDir)
	e.set("MUSTER_CHECKPOINT_DIR", f.Checkpoint)
	e.set("MUSTER_STOP_FILE", f.stopFile())
	e.set("MUSTER_PROGRESS_FILE", f.progressFile())
}

// setGPUs names the rank's own GPUs by UUID: there is no device filter yet, so indices would count the machine's. Without any
// the list is empty rather than unset, which would mean all.
func setGPUs(e *environment, a *step.Assignment, f *Facts) {
	var uuids []string
	for _, slot := range a.Alloc.Slots.Slots() {
		if slot < len(f.GPUs) {
			uuids = append(uuids, f.GPUs[slot].UUID)
		}
	}
	list := strings.Join(uuids, ",")
	e.set("MUSTER_GPUS", list)
	e.setInt("MUSTER_GPUS_PER_RANK", a.Of().Task.Resources.GPUs)
	e.set("CUDA_VISIBLE_DEVICES", list)
	e.set("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
	e.set("NVIDIA_VISIBLE_DEVICES", list)
	if list == "" {
		e.set("NVIDIA_VISIBLE_DEVICES", "void") // the container toolkit's word for none; empty means that it isn't asked
	}
	cores := int(a.Alloc.MilliCores / 1000)
	e.setInt("OMP_NUM_THREADS", max(1, cores/max(1, len(uuids))))
}

// setLaunchers sets what torchrun, PyTorch's env:// and JAX read. Each reads only its own, so that all are set at once. A
// rank is what torchrun calls a node: it starts its own processes there, one for each GPU.
func setLaunchers(e *environment, a *step.Assignment, f *Facts) {
	g, rank, ranks := a.Of(), a.Alloc.Rank, a.Of().Count
	gpus := g.Task.Resources.GPUs
	e.setInt("PET_NNODES", ranks)
	e.setInt("PET_NPROC_PER_NODE", max(1, gpus))
	e.setInt("PET_NODE_RANK", rank)
	e.set("PET_RDZV_BACKEND", "c10d")
	e.set("PET_RDZV_ID", fmt.Sprintf("%s-%d", a.Alloc.Job, a.Alloc.Attempt))
	if s := g.Checkpoint.Signal; s != "" {
		e.set("TORCHELASTIC_SIGNALS_TO_HANDLE", signals(s))
	}
	if master := a.Peers[0]; master.Port != 0 {
		port := strconv.Itoa(int(master.Port))
		endpoint := hostPort(master.IP, port)
		e.set("PET_MASTER_ADDR", master.IP)
		e.set("PET_MASTER_PORT", port)
		e.set("PET_RDZV_ENDPOINT", endpoint)
		e.set("MASTER_ADDR", master.IP)
		e.set("MASTER_PORT", port)
		e.set("JAX_COORDINATOR_ADDRESS", endpoint)
	}
	e.setInt("NODE_RANK", rank)
	e.setInt("GROUP_RANK", rank)
	e.setInt("NNODES", ranks)
	if gpus <= 1 {
		here, before := 0, 0
		for _, p := range a.Ranks(a.Alloc.Group) {
			if p.Node == f.Node {
				here++
				if p.Rank < rank {
					before++
				}
			}
		}
		e.setInt("RANK", rank)
		e.setInt("WORLD_SIZE", ranks)
		e.setInt("LOCAL_RANK", before)
		e.setInt("LOCAL_WORLD_SIZE", here)
	}
	e.setInt("JAX_NUM_PROCESSES", ranks)
	e.setInt("JAX_PROCESS_ID", rank)
	if f.Interface != "" && a.Spread() {
		e.set("NCCL_SOCKET_IFNAME", f.Interface)
		e.set("GLOO_SOCKET_IFNAME", f.Interface)
	}
}

// signals are what torchrun passes on to its workers, the checkpoint signal included.
func signals(checkpoint string) string {
	list := []string{"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"}
	if !slices.Contains(list, checkpoint) {
		list = append(list, checkpoint)
	}
	return strings.Join(list, ",")
}

func addresses(peers []step.Peer) string {
	ips := make([]string, len(peers))
	for i, p := range peers {
		ips[i] = p.IP
	}
	return strings.Join(ips, ",")
}

// variable is a group's name as it stands in the name of a variable.
func variable(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }

func hostPort(ip, port string) string {
	if strings.Contains(ip, ":") {
		return "[" + ip + "]:" + port
	}
	return ip + ":" + port
}

// hostFile lists the ranks of the attempt, a line each: "ip slots=N", N its GPUs, else its cores.
func hostFile(a *step.Assignment) string {
	var b strings.Builder
	for _, p := range a.Peers {
		slots := p.GPUs
		if slots == 0 {
			slots = max(1, int(p.MilliCores/1000))
		}
		fmt.Fprintf(&b, "%s slots=%d\n", p.IP, slots)
	}
	return b.String()
}
