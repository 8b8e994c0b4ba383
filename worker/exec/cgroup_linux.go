package exec

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhpc/muster"
)

// Cgroups, straight on the file system. The tree below the mount is ROOT/INSTANCE/SUPERVISOR/JOB-ATTEMPT/ALLOC, where
// SUPERVISOR is the supervisor's pid and start time: whoever finds a tree knows whether its supervisor lives. In version 1 the
// tree is made in the hierarchies freezer (which says what processes there are), memory and cpu.
type cgroups struct {
	version  int    // 1 or 2
	track    string // mount of the unified or the freezer hierarchy
	memory   string // "" = memory can't be limited
	cpu      string // "" = cores can't be weighed
	instance string // ROOT/INSTANCE
	own      string // ROOT/INSTANCE/SUPERVISOR

	mu    sync.Mutex // making and removing a job's group must not cross
	cores map[string]muster.MilliCores
}

// findCgroups finds what is mounted.
func findCgroups(c SupervisorConfig, self identity) (*cgroups, error) {
	g := &cgroups{instance: filepath.Join(c.CgroupRoot, c.Instance), cores: map[string]muster.MilliCores{}}
	g.own = filepath.Join(g.instance, self.String())
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	unified := ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		mount := left[4]
		switch right[0] {
		case "cgroup2":
			unified = mount
		case "cgroup":
			for _, option := range strings.Split(right[2], ",") {
				switch option {
				case "freezer":
					g.track = mount
				case "memory":
					g.memory = mount
				case "cpu":
					g.cpu = mount
				}
			}
		}
	}
	switch {
	case g.track != "":
		g.version = 1
	case unified != "":
		g.version, g.track = 2, unified
		controllers, err := os.ReadFile(filepath.Join(unified, "cgroup.controllers"))
		if err != nil {
			return nil, err
		}
		for _, name := range strings.Fields(string(controllers)) {
			switch name {
			case "memory":
				g.memory = unified
			case "cpu":
				g.cpu = unified
			}
		}
	default:
		return nil, errors.New("no cgroups are mounted")
	}
	return g, nil
}

// mounts lists the hierarchies that the tree is made in, the tracking one first.
func (g *cgroups) mounts() []string {
	list := []string{g.track}
	if g.version == 1 {
		for _, m := range []string{g.memory, g.cpu} {
			if m != "" {
				list = append(list, m)
			}
		}
	}
	return list
}

// open makes this supervisor's own group. In version 1 the supervisor moves in, so that a thread of it that has entered a
// task's group can come back without knowing where it was.
func (g *cgroups) open() error {
	if g.version == 2 {
		return g.openUnified()
	}
	for _, mount := range g.mounts() {
		if err := os.MkdirAll(filepath.Join(mount, g.own), 0o755); err != nil {
			return err
		}
		if err := writeFile(filepath.Join(mount, g.own, "cgroup.procs"), strconv.Itoa(os.Getpid())); err != nil {
			return err
		}
	}
	if g.cpu != "" {
		for dir := g.own; dir != "."; dir = filepath.Dir(dir) {
			_ = writeFile(filepath.Join(g.cpu, dir, "cpu.shares"), strconv.FormatInt(shares(g.machineCores()), 10))
		}
	}
	return nil
}

func (g *cgroups) openUnified() error {
	dir := g.track
	for _, part := range append([]string{""}, strings.Split(g.own, string(filepath.Separator))...) {
		dir = filepath.Join(dir, part)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		g.delegate(dir)
	}
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	if !bytes.Contains(controllers, []byte("memory")) {
		g.memory = ""
	}
	if !bytes.Contains(controllers, []byte("cpu")) {
		g.cpu = ""
	}
	return nil
}

// delegate gives the children of a unified group the controllers, each by itself: one that can't be had is done without.
func (g *cgroups) delegate(dir string) {
	for _, name := range []string{"+memory", "+cpu"} {
		_ = writeFile(filepath.Join(dir, "cgroup.subtree_control"), name)
	}
}

func (g *cgroups) machineCores() muster.MilliCores {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return 1000
	}
	return muster.MilliCores(set.Count()) * 1000
}

// close leaves and removes this supervisor's own group.
func (g *cgroups) close() {
	for _, mount := range g.mounts() {
		if g.version == 1 {
			_ = writeFile(filepath.Join(mount, "cgroup.procs"), strconv.Itoa(os.Getpid()))
		}
		for _, dir := range []string{g.own, g.instance} {
			_ = os.Remove(filepath.Join(mount, dir))
		}
	}
}

// cgroup is the group of one task.
type cgroup struct {
	all *cgroups
	dir string // ROOT/INSTANCE/SUPERVISOR/JOB-ATTEMPT/ALLOC
}

// shares is the weight of so many cores in version 1: 1024 for one.
func shares(cores muster.MilliCores) int64 { return min(max(int64(cores)*1024/1000, 2), 262144) }

// weight is the weight of so many cores in version 2: 100 for one.
func weight(cores muster.MilliCores) int64 { return min(max(int64(cores)/10, 1), 10000) }

// makeTask makes the group of a task, with its limits. After an error there may be a part of it to remove.
func (g *cgroups) makeTask(t *Task) (*cgroup, error) {
	job := filepath.Join(g.own, fmt.Sprintf("%d-%d", t.Job, t.Attempt))
	group := &cgroup{all: g, dir: filepath.Join(job, t.Alloc.String())}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cores[job] += t.MilliCores // among the jobs of the node each counts for the sum of its ranks
	for _, mount := range g.mounts() {
		for _, dir := range []string{job, group.dir} {
			if err := os.Mkdir(filepath.Join(mount, dir), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return group, err
			}
			if g.version == 2 && dir == job {
				g.delegate(filepath.Join(mount, dir))
			}
		}
	}
	g.set(job, g.cores[job])
	g.set(group.dir, t.MilliCores)
	return group, group.limit(t.Memory)
}

// set writes a weight. It is a matter of fairness only: a kernel that refuses one does no harm.
func (g *cgroups) set(dir string, cores muster.MilliCores) {
	switch {
	case g.cpu == "" || cores <= 0:
	case g.version == 1:
		_ = writeFile(filepath.Join(g.cpu, dir, "cpu.shares"), strconv.FormatInt(shares(cores), 10))
	default:
		_ = writeFile(filepath.Join(g.cpu, dir, "cpu.weight"), strconv.FormatInt(weight(cores), 10))
	}
}

// limit bounds memory, swap included, unless the machine has no more anyway.
func (c *cgroup) limit(memory muster.Bytes) error {
	if c.all.memory == "" || memory <= 0 || memory >= machineMemory() {
		return nil
	}
	dir, value := filepath.Join(c.all.memory, c.dir), strconv.FormatInt(int64(memory), 10)
	if c.all.version == 1 {
		if err := writeFile(filepath.Join(dir, "memory.limit_in_bytes"), value); err != nil {
			return err
		}
		_ = writeFile(filepath.Join(dir, "memory.memsw.limit_in_bytes"), value) // absent without swap accounting
		return nil
	}
	if err := writeFile(filepath.Join(dir, "memory.max"), value); err != nil {
		return err
	}
	_ = writeFile(filepath.Join(dir, "memory.swap.max"), "0")
	_ = writeFile(filepath.Join(dir, "memory.oom.group"), "1")
	return nil
}

func machineMemory() muster.Bytes {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 1 << 62
	}
	return muster.Bytes(info.Totalram) * muster.Bytes(info.Unit)
}

// fork calls f so that a child forked in it is born inside c: by descriptor in version 2; in version 1 the calling thread,
// which must be locked, goes in and comes back. Writing 0 to tasks moves only the writing thread and takes no lock that others
// wait for.
func (c *cgroup) fork(attr *syscall.SysProcAttr, f func() error) error {
	if c.all.version == 2 {
		dir, err := unix.Open(filepath.Join(c.all.track, c.dir), unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		attr.UseCgroupFD, attr.CgroupFD = true, dir
		return f()
	}
	err := c.all.move(c.dir)
	if err == nil {
		err = f()
	}
	if back := c.all.move(c.all.own); back != nil {
		return errors.Join(err, back)
	}
	return err
}

func (g *cgroups) move(dir string) error {
	for _, mount := range g.mounts() {
		if err := writeFile(filepath.Join(mount, dir, "tasks"), "0"); err != nil {
			return err
		}
	}
	return nil
}

// processes lists what is in the group, and in groups that the task made below it.
func (c *cgroup) processes() []process { return cgroupProcesses(filepath.Join(c.all.track, c.dir)) }

func cgroupProcesses(dir string) []process {
	self := os.Getpid()
	var list []process
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil
		}
		b, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return nil
		}
		for _, word := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(word)
			// A thread of this very process is in the group for a moment while it forks; 0 is a process of another
			// namespace.
			if err != nil || pid == 0 || pid == self {
				continue
			}
			p, ok := readProcess(pid)
			if p.pid == 0 {
				continue
			}
			if ok || p.state == 'Z' { // a zombie that still has threads is listed, and still holds what they hold
				list = append(list, p)
			}
		}
		return nil
	})
	return list
}

// empty says whether no process is in the group; cheaper than processes.
func (c *cgroup) empty() bool {
	b, err := os.ReadFile(filepath.Join(c.all.track, c.dir, "cgroup.procs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENODEV) {
		return false
	}
	if len(bytes.TrimSpace(b)) > 0 {
		return false
	}
	var st unix.Stat_t
	if unix.Stat(filepath.Join(c.all.track, c.dir), &st) == nil && st.Nlink <= 2 {
		return true // no groups below
	}
	return len(c.processes()) == 0
}

func (c *cgroup) kill() { killCgroup(c.all.version, filepath.Join(c.all.track, c.dir)) }

// killCgroup sends SIGKILL to everything in and below dir, once. In version 1 what is there is frozen meanwhile, so that it
// can't fork faster than it is killed.
func killCgroup(version int, dir string) {
	if version == 2 {
		if writeFile(filepath.Join(dir, "cgroup.kill"), "1") == nil {
			return
		}
		killEach(cgroupProcesses(dir), syscall.SIGKILL) // before Linux 5.14
		return
	}
	_ = writeFile(filepath.Join(dir, "freezer.state"), "FROZEN")
	killEach(cgroupProcesses(dir), syscall.SIGKILL)
	// What is frozen does not die: groups below too, which a task, or a supervisor that was killed just here, may have left so.
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			_ = writeFile(filepath.Join(path, "freezer.state"), "THAWED")
		}
		return nil
	})
}

// ooms counts the processes of the group that the kernel killed for memory.
func (c *cgroup) ooms() int {
	if c.all.memory == "" {
		return 0
	}
	name := "memory.oom_control"
	if c.all.version == 2 {
		name = "memory.events"
	}
	b, err := os.ReadFile(filepath.Join(c.all.memory, c.dir, name))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "oom_kill" {
			n, _ := strconv.Atoi(fields[1])
			return n
		}
	}
	return 0
}

// peak is the most memory that the group has held; 0 = the kernel does not say.
func (c *cgroup) peak() muster.Bytes {
	if c.all.memory == "" {
		return 0
	}
	name := "memory.max_usage_in_bytes"
	if c.all.version == 2 {
		name = "memory.peak"
	}
	b, err := os.ReadFile(filepath.Join(c.all.memory, c.dir, name))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return muster.Bytes(n)
}

// remove takes the group of an ended task away, and its job's when it was the last.
func (c *cgroup) remove(cores muster.MilliCores) {
	job := filepath.Dir(c.dir)
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	for _, mount := range c.all.mounts() {
		removeCgroup(filepath.Join(mount, c.dir))
		_ = syscall.Rmdir(filepath.Join(mount, job)) // stays while it has others
	}
	c.all.cores[job] -= cores
	if c.all.cores[job] <= 0 {
		delete(c.all.cores, job)
	}
}

// removeCgroup removes dir and the groups below it. The kernel may call it busy for a moment after its last process is gone;
// what stays for longer is empty, and the next agent removes it.
func removeCgroup(dir string) {
	for range 5 {
		err := syscall.Rmdir(dir)
		if err == nil || err == syscall.ENOENT {
			return
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return
		}
		for _, entry := range entries {
			if entry.IsDir() {
				removeCgroup(filepath.Join(dir, entry.Name()))
			}
		}
		if syscall.Rmdir(dir) == nil {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// writeFile writes a control file, which exists already, with one write.
func writeFile(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(value)); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}
