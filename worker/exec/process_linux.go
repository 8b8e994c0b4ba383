package exec

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/musterhpc/muster"
)

// The marks by which a task's processes are known where they are in no cgroup of ours. A process can take them off; that is
// why such a host counts as weakly fenced.
const (
	markAlloc      = "MUSTER_ALLOC"
	markSupervisor = "MUSTER_SUPERVISOR" // INSTANCE/PID-START
)

// process is what /proc says of one.
type process struct {
	pid, parent, group, session int
	state                       byte // 'D': it can't be killed now
	exiting                     bool // it will never run again, but may still hold what it had
	start                       uint64
	name                        string
}

func (p *process) String() string {
	if p.state == 'D' {
		return fmt.Sprintf("%d (%s) waits for a device and can't be killed", p.pid, p.name)
	}
	return fmt.Sprintf("%d (%s) has not ended yet", p.pid, p.name)
}

// readProcess reads /proc/PID/stat; false: there is no such process, or only its remains (a zombie).
func readProcess(pid int) (process, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	// The name stands in brackets and may hold anything, brackets too.
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return process{}, false
	}
	fields := strings.Fields(string(b[end+1:]))
	if len(fields) < 20 {
		return process{}, false
	}
	number := func(i int) int { n, _ := strconv.Atoi(fields[i]); return n }
	p := process{
		pid: pid, name: string(b[open+1 : end]), state: fields[0][0], parent: number(1), group: number(2), session: number(3),
	}
	const exiting = 0x4 // PF_EXITING of the kernel
	p.exiting = number(6)&exiting != 0
	p.start, _ = strconv.ParseUint(fields[19], 10, 64)
	return p, p.state != 'Z' && p.state != 'X'
}

// alive says whether the process that i names still lives. One whose connection was just lost may be listed for a while.
func (i identity) alive() bool {
	p, ok := readProcess(i.pid)
	return ok && p.start == i.start && !p.exiting
}

func ownIdentity() identity {
	p, _ := readProcess(os.Getpid())
	return identity{pid: os.Getpid(), start: p.start}
}

func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// processes lists all of the machine that this one sees.
func processes() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var list []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			list = append(list, p)
		}
	}
	return list
}

// environ gives one variable of another process's environment, as it was when it was started.
func environ(pid int, name string) (string, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return "", false
	}
	for len(b) > 0 {
		entry, rest, _ := bytes.Cut(b, []byte{0})
		if value, ok := bytes.CutPrefix(entry, []byte(name+"=")); ok {
			return string(value), true
		}
		b = rest
	}
	return "", false
}

// marked lists those of all that carry both marks or the tag, or are of the session of main (0 = none), and their descendants.
// What was started before since, in clock ticks since boot, is none of them.
func marked(all []process, id muster.AllocID, supervisor string, main int, since uint64) []process {
	self := os.Getpid()
	instance, _, _ := strings.Cut(supervisor, "/")
	tag := tag(instance, id)
	var found []process
	in := map[int]bool{}
	for _, p := range all {
		if p.pid == self || p.start < since {
			continue
		}
		ours := main != 0 && (p.session == main || p.group == main) || hasTag(p.pid, tag)
		if !ours {
			if value, ok := environ(p.pid, markSupervisor); ok && value == supervisor {
				value, _ = environ(p.pid, markAlloc)
				ours = value == id.String()
			}
		}
		if ours {
			in[p.pid] = true
			found = append(found, p)
		}
	}
	for grew := len(in) > 0; grew; {
		grew = false
		for _, p := range all {
			if !in[p.pid] && in[p.parent] && p.pid != self {
				in[p.pid], grew = true, true
				found = append(found, p)
			}
		}
	}
	return found
}

// killEach sends sig to each; one that is gone already is none of our business.
func killEach(list []process, sig syscall.Signal) {
	for _, p := range list {
		if now, ok := readProcess(p.pid); ok && now.start == p.start {
			_ = syscall.Kill(p.pid, sig)
		}
	}
}

// named lists processes in a sentence, the stuck ones first, at most three.
func named(list []process) string {
	var stuck, rest []string
	for i := range list {
		if list[i].state == 'D' {
			stuck = append(stuck, "process "+list[i].String())
		} else {
			rest = append(rest, "process "+list[i].String())
		}
	}
	all := append(stuck, rest...)
	if len(all) > 3 {
		return strings.Join(all[:3], ", ") + fmt.Sprintf(", and %d more", len(all)-3)
	}
	return strings.Join(all, ", ")
}
