//go:build chaos

package chaos

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// boot is one life of a machine: namespaces of its own for processes, mounts, names and ipc, and one network namespace for
// all its lives. When its first process ends the kernel ends all others; and that one ends when the thread that made it does.
type boot struct {
	id    string
	calls chan func()
	init  *exec.Cmd
	hold  io.Closer // the init's standard input
	ended chan struct{}
}

// cgroupRoot is under which a machine's cgroups are made, in each hierarchy. The process id tells those of other runs apart.
func cgroupRoot() string { return fmt.Sprintf("muster-chaos-%d", os.Getpid()) }

// startBoot starts a machine. bootFile is where the new boot id is written.
func startBoot(host *Host, bootFile string) (*boot, error) {
	b := &boot{id: newBootID(), calls: make(chan func()), ended: make(chan struct{})}
	if err := os.WriteFile(bootFile, []byte(b.id+"\n"), 0o444); err != nil {
		return nil, err
	}
	// The os package tries once, with a child, whether the kernel has pidfds. That child must not be the first process of the
	// machine's namespace: the namespace would end with it.
	if _, err := os.FindProcess(os.Getpid()); err != nil {
		return nil, err
	}
	made := make(chan error)
	go b.thread(host, bootFile, made)
	return b, <-made
}

// newBootID is random: whatever becomes of a machine, no two of its lives look alike.
func newBootID() string {
	var b [16]byte
	rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

func (b *boot) thread(host *Host, bootFile string, made chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
	if err := b.begin(host, bootFile); err != nil {
		made <- fmt.Errorf("machine %s: %w", host.Name, err)
		return
	}
	made <- nil
	for {
		select {
		case call := <-b.calls:
			call()
		case <-b.ended:
			return
		}
	}
}

func (b *boot) begin(host *Host, bootFile string) error {
	if err := unix.Setns(int(host.ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter its network: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_FS); err != nil {
		return fmt.Errorf("namespaces: %w (this needs root)", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := errors.Join(unix.Sethostname([]byte(host.Name)), ownCgroups(host.Name)); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	b.init = exec.Command(self)
	b.init.Env = append(os.Environ(), initVariable+"="+bootFile)
	b.init.Stderr = os.Stderr
	b.init.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	stdin, err := b.init.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := b.init.StdoutPipe()
	if err != nil {
		return err
	}
	if err := b.init.Start(); err != nil {
		return fmt.Errorf("its first process: %w", err)
	}
	b.hold = stdin
	line, err := bufio.NewReader(stdout).ReadString('\n')
	go func() {
		_ = b.init.Wait() // it was killed, or told to end
		close(b.ended)
	}()
	if err != nil || strings.TrimSpace(line) != "up" {
		return fmt.Errorf("its first process said %q: %v", line, err)
	}
	return nil
}

// start starts a process on the machine.
func (b *boot) start(command *exec.Cmd) error {
	done := make(chan error, 1)
	select {
	case b.calls <- func() { done <- command.Start() }:
		return <-done
	case <-b.ended:
		return errors.New("the machine is off")
	}
}

// cut is what a power cut does: every process of the machine is gone when it returns.
func (b *boot) cut() {
	_ = b.init.Process.Kill()
	_ = b.hold.Close()
	<-b.ended
}

// ownCgroups lets the calling thread's mounts show a part of each cgroup hierarchy as the whole of it, so that machines don't
// see each other's groups.
func ownCgroups(machine string) error {
	mounts, err := cgroupMounts()
	if err != nil {
		return err
	}
	for _, mount := range mounts {
		dir := filepath.Join(mount, cgroupRoot(), machine)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("its cgroups: %w", err)
		}
		if err := unix.Mount(dir, mount, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("its cgroups at %s: %w", mount, err)
		}
	}
	return nil
}

// cgroupMounts lists the hierarchies that muster uses.
func cgroupMounts() ([]string, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var mounts []string
	for line := range strings.Lines(string(table)) {
		before, after, ok := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		options := "," + right[2] + ","
		for _, used := range []string{"freezer", "memory", "cpu"} {
			if right[0] == "cgroup" && strings.Contains(options, ","+used+",") {
				mounts = append(mounts, left[4])
			}
		}
	}
	return mounts, nil
}

// removeCgroups removes what machines of this run have made, once their processes are gone, and what killed runs left.
func removeCgroups() {
	mounts, err := cgroupMounts()
	if err != nil {
		return
	}
	for _, mount := range mounts {
		removeTree(filepath.Join(mount, cgroupRoot()))
		others, _ := filepath.Glob(filepath.Join(mount, "muster-chaos-*"))
		for _, dir := range others {
			pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "muster-chaos-"))
			if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
				removeTree(dir)
			}
		}
	}
}

func removeTree(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if entry.IsDir() {
			removeTree(filepath.Join(dir, entry.Name()))
		}
	}
	_ = syscall.Rmdir(dir) // one that stays is empty, and does no harm
}
