//go:build chaos

package chaos

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/musterhpc/muster/test/chaos/check"
)

// Machine is a host of the network with an agent on it. Whatever ends by itself is started again after a second, as a service
// manager would; what a fault keeps down stays down until all faults that do so are over.
type Machine struct {
	*Host
	Server bool
	Dir    string
	binary string
	log    *os.File // of all its agents
	say    func(format string, args ...any)

	mu      sync.Mutex
	boot    *boot
	off     int // faults that keep the machine off
	down    int // faults that keep its agent down
	paused  int // faults that keep its agent stopped
	still   int // faults that keep everything stopped
	agent   *exec.Cmd
	cuts    []check.Instant // when its power was cut, or its supervisors were killed
	closing bool
	wait    sync.WaitGroup
}

// NewMachine makes a machine that is off. config is its agent's file without what follows from the machine itself.
func NewMachine(host *Host, dir, binary, config string, server bool, say func(string, ...any)) (*Machine, error) {
	m := &Machine{Host: host, Server: server, Dir: dir, binary: binary, say: say, off: 1}
	for _, sub := range []string{"", "faults"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	text := fmt.Sprintf("name = %q\ndata_dir = %q\nbind = %q\ninsecure = true\ncluster = \"chaos\"\nlog { format = \"json\" }\n%s",
		host.Name, dir, host.IP, config)
	if err := os.WriteFile(filepath.Join(dir, "agent.hcl"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	var err error
	m.log, err = os.OpenFile(m.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return m, err
}

func (m *Machine) logPath() string { return filepath.Join(m.Dir, "agent.log") }

// On starts the machine, and its agent, unless another fault keeps it off.
func (m *Machine) On() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.off--; m.off > 0 || m.closing {
		return nil
	}
	b, err := startBoot(m.Host, filepath.Join(m.Dir, "boot_id"))
	if err != nil {
		return err
	}
	m.boot = b
	m.wait.Go(func() { m.keep(b) })
	return nil
}

// Off cuts the machine's power.
func (m *Machine) Off() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.off++
	m.cut()
}

func (m *Machine) cut() {
	if m.boot != nil {
		m.boot.cut()
		m.boot = nil
		m.cuts = append(m.cuts, now())
	}
}

// keep keeps the agent running for as long as the machine is on.
func (m *Machine) keep(b *boot) {
	for {
		m.runAgent(b)
		select {
		case <-b.ended:
			return
		case <-time.After(time.Second):
		}
	}
}

func (m *Machine) runAgent(b *boot) {
	command := exec.Command(m.binary, "agent", "--config", filepath.Join(m.Dir, "agent.hcl"))
	command.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + m.Dir, "MUSTER_CHAOS=" + filepath.Join(m.Dir, "faults")}
	command.Dir, command.SysProcAttr = "/", &syscall.SysProcAttr{Setsid: true}
	pipe, err := command.StderrPipe()
	if err != nil {
		m.say("%s: %v", m.Name, err)
		return
	}
	m.mu.Lock()
	if m.boot != b || m.down > 0 || m.closing {
		m.mu.Unlock()
		return
	}
	if err := b.start(command); err != nil {
		m.mu.Unlock()
		m.say("%s: can't start its agent: %v", m.Name, err)
		return
	}
	m.agent = command
	m.mu.Unlock()
	last := copyLog(m.log, pipe)
	err = command.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.agent = nil
	if m.boot == b && m.down == 0 && !m.closing {
		m.say("%s: its agent ended: %v: %s", m.Name, err, last)
	}
}

// copyLog copies what an agent writes and gives its last line.
func copyLog(log *os.File, from io.Reader) (last string) {
	buffer, tail := make([]byte, 64<<10), ""
	for {
		n, err := from.Read(buffer)
		_, _ = log.Write(buffer[:n]) // a full disk shows in the evidence
		tail += string(buffer[:n])
		tail = tail[max(0, len(tail)-2000):]
		if err != nil {
			lines := strings.Split(strings.TrimSpace(tail), "\n")
			return lines[len(lines)-1]
		}
	}
}

// KeepDown kills the agent, and keeps it down until StartAgain.
func (m *Machine) KeepDown() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down++
	m.signalAgent(syscall.SIGKILL)
}

// StartAgain takes one KeepDown back.
func (m *Machine) StartAgain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down--
}

// KillSupervisors is kill -9 of its supervisors.
func (m *Machine) KillSupervisors() {
	for _, p := range m.Processes() {
		if p.supervisor {
			_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may have ended meanwhile
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cuts = append(m.cuts, now())
}

// Pause stops the agent's process as SIGSTOP does.
func (m *Machine) Pause() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paused++
	m.signalAgent(syscall.SIGSTOP)
}

// Resume takes one Pause back.
func (m *Machine) Resume() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.paused--; m.paused == 0 && m.still == 0 {
		m.signalAgent(syscall.SIGCONT)
	}
}

func (m *Machine) signalAgent(signal syscall.Signal) {
	if m.agent != nil {
		_ = m.agent.Process.Signal(signal) // it may have ended meanwhile
	}
}

// Freeze stops every process of the machine, until none runs.
func (m *Machine) Freeze() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.still++
	stopped := map[int]bool{}
	for again := true; again; {
		again = false
		for _, p := range m.Processes() {
			if !stopped[p.pid] && syscall.Kill(p.pid, syscall.SIGSTOP) == nil {
				stopped[p.pid], again = true, true
			}
		}
	}
}

// Thaw takes one Freeze back.
func (m *Machine) Thaw() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.still--; m.still > 0 {
		return
	}
	for _, p := range m.Processes() {
		if m.paused == 0 || m.agent == nil || p.pid != m.agent.Process.Pid {
			_ = syscall.Kill(p.pid, syscall.SIGCONT) // it may have ended meanwhile
		}
	}
}

// Fault writes what the agent's clock or disk shall do; "" makes it well again.
func (m *Machine) Fault(what, how string) error {
	path := filepath.Join(m.Dir, "faults", what)
	if how == "" {
		return os.Remove(path)
	}
	return os.WriteFile(path, []byte(how), 0o600)
}

// Close cuts the power for ever and waits until nothing is left.
func (m *Machine) Close() error {
	m.mu.Lock()
	m.closing = true
	m.cut()
	m.mu.Unlock()
	m.wait.Wait()
	return m.log.Close()
}

// process is one of a machine's, with its number outside.
type process struct {
	pid        int
	command    string
	supervisor bool
	alloc      string // "" = it is no task's
}

// Processes lists those of the machine, its first one included: those in its network namespace.
func (m *Machine) Processes() []process {
	links, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	var list []process
	for _, link := range links {
		if id, err := os.Readlink(link); err != nil || id != m.id {
			continue
		}
		dir := filepath.Dir(filepath.Dir(link))
		pid, _ := strconv.Atoi(filepath.Base(dir))
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(line) == 0 {
			continue // it has ended
		}
		words := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
		environment, _ := os.ReadFile(filepath.Join(dir, "environ"))
		p := process{pid: pid, command: strings.Join(words, " "), supervisor: len(words) > 1 && words[1] == "supervise"}
		for entry := range strings.SplitSeq(string(environment), "\x00") {
			if value, ok := strings.CutPrefix(entry, "MUSTER_ALLOC="); ok {
				p.alloc = value
			}
		}
		list = append(list, p)
	}
	return list
}

// Leftovers are processes of tasks.
func (m *Machine) Leftovers() []check.Leftover {
	var list []check.Leftover
	for _, p := range m.Processes() {
		if p.alloc != "" {
			list = append(list, check.Leftover{Time: now(), Machine: m.Name, PID: p.pid, Command: p.command, Alloc: p.alloc})
		}
	}
	return list
}
