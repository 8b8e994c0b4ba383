package exec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// program is what is executed for a task.
type program struct {
	path string
	argv []string
}

const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

// find gives the program of a task, or why there is none, with the exit code that a shell would give.
func (t *Task) find() (program, int, string) {
	argv := t.Argv
	if t.Script != "" {
		script := t.scriptPath()
		argv = []string{script}
		if !strings.HasPrefix(t.Script, "#!") {
			argv = []string{"/bin/bash", "-euo", "pipefail", script}
		}
	}
	name := argv[0]
	if strings.Contains(name, "/") {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(t.workDir(), path)
		}
		switch err := executable(path); {
		case err == nil:
			return program{path: path, argv: argv}, 0, ""
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
			return program{}, codeNotFound, fmt.Sprintf("command %q does not exist", name)
		default:
			return program{}, codeNotExecutable, fmt.Sprintf("command %q can't be executed: %v", name, err)
		}
	}
	refused := ""
	for _, dir := range filepath.SplitList(t.env("PATH")) {
		if dir == "" {
			continue // the current directory, which is nowhere safe to look
		}
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(t.workDir(), dir)
		}
		path := filepath.Join(dir, name)
		err := executable(path)
		if err == nil {
			return program{path: path, argv: argv}, 0, ""
		}
		if refused == "" && errors.Is(err, fs.ErrPermission) {
			refused = path
		}
	}
	if refused != "" {
		return program{}, codeNotExecutable, fmt.Sprintf("command %q is at %s and may not be executed", name, refused)
	}
	return program{}, codeNotFound, fmt.Sprintf("command %q not found in PATH", name)
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return errors.Unwrap(err)
	}
	if info.IsDir() {
		return syscall.EISDIR
	}
	return unix.Access(path, unix.X_OK)
}

// env gives the last value of a variable, which is the one that the process sees.
func (t *Task) env(name string) string {
	for i := len(t.Env) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(t.Env[i], name+"="); ok {
			return value
		}
	}
	return ""
}

func (t *Task) scriptPath() string { return filepath.Join(t.TaskDir, "script") }

// refusal says why exec refused a program that was found, with the exit code that a shell would give.
func refusal(p program, err error) (int, string) {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return codeNotFound, fmt.Sprintf("command %q: the interpreter that its first line names does not exist", p.path)
	case errors.Is(err, syscall.ENOEXEC):
		return codeNotExecutable, fmt.Sprintf("command %q is neither a program of this machine nor a script with a first line #!…", p.path)
	case errors.Is(err, syscall.E2BIG):
		return codeNotExecutable, fmt.Sprintf("command %q: its arguments and environment are too long", p.path)
	}
	return codeNotExecutable, fmt.Sprintf("command %q can't be executed: %v", p.path, err)
}

// outputs are the pipes of a task's output: the read ends are ours, the write ends the child's.
type outputs struct {
	out, err *os.File
	files    [3]int // of the child: null, out, err
}

func openOutputs() (*outputs, error) {
	o := &outputs{files: [3]int{-1, -1, -1}}
	var err error
	if o.files[0], err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return nil, err
	}
	for i, into := range []**os.File{&o.out, &o.err} {
		var pipe [2]int
		if err = unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			break
		}
		o.files[i+1] = pipe[1]
		_ = unix.SetNonblock(pipe[0], true)
		*into = os.NewFile(uintptr(pipe[0]), "output")
	}
	if err != nil {
		o.closeChild()
		o.closeOwn()
		return nil, err
	}
	return o, nil
}

func (o *outputs) closeChild() {
	for i, fd := range o.files {
		if fd >= 0 {
			unix.Close(fd)
			o.files[i] = -1
		}
	}
}

func (o *outputs) closeOwn() {
	for _, f := range []*os.File{o.out, o.err} {
		if f != nil {
			f.Close()
		}
	}
}

// launch forks p for t on the thread of sp, into group, or with a tag where group is nil. Errors that are not syscall.Errno are the host's.
func launch(sp *space, group *cgroup, tag uint64, t *Task, p program, env []string, o *outputs) (made *child, err error) {
	attr := &syscall.ProcAttr{
		Dir: t.workDir(), Env: env, Files: []uintptr{uintptr(o.files[0]), uintptr(o.files[1]), uintptr(o.files[2])},
		Sys: &syscall.SysProcAttr{Setsid: true},
	}
	if sp.init == nil {
		// In a pid namespace the init is what ties the task to us: there Go's check that the parent still lives, which
		// compares parent pids, would take our pid, which is 0 there, for a dead parent's and kill the child.
		attr.Sys.Pdeathsig = syscall.SIGKILL
	}
	var failed error // of the fork itself
	fork := func() error {
		for try := 0; ; try++ {
			made, failed = sp.kids.fork(p.path, p.argv, attr)
			// A script that was just written is busy while another fork, which has inherited our descriptor of it, has
			// not reached its exec.
			if failed != syscall.ETXTBSY || try == 20 {
				return nil
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
	sp.do(func() {
		if group == nil {
			err = tagged(tag, fork)
		} else {
			err = group.fork(attr.Sys, fork)
		}
	})
	if err != nil {
		if made != nil {
			sp.kids.signal(made.pid, syscall.SIGKILL)
			<-made.exited
		}
		return nil, fmt.Errorf("cgroup of the task: %w", err)
	}
	return made, failed
}
