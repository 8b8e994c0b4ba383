package exec

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster"
)

func exitOf(n uint64) *Status {
	return &Status{Alloc: muster.AllocID{Epoch: 1, Counter: n}, Phase: muster.AllocEnded, ExitCode: int(n % 7), Ended: time.UnixMilli(1)}
}

func beginExits(t *testing.T, dir string, self identity) *exitLog {
	t.Helper()
	l, err := openExitLog(dir, self)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func writeExit(t *testing.T, l *exitLog, n uint64) {
	t.Helper()
	if err := l.write(exitOf(n)); err != nil {
		t.Fatal(err)
	}
}

// An exit is there for whoever comes after a supervisor that died, until it is forgotten; a torn last line was told to nobody.
func TestExitsOutliveTheirSupervisor(t *testing.T) {
	dir := t.TempDir()
	dead := identity{pid: 1 << 22, start: 1} // no such pid: the kernel's limit is lower
	l := beginExits(t, dir, dead)
	for n := range uint64(3) {
		writeExit(t, l, n+1)
	}
	if err := l.forget(exitOf(2).Alloc); err != nil {
		t.Fatal(err)
	}
	if err := appendTo(l.path, []byte(`{"exit":{"Alloc":{"Epoch":1,"Cou`)); err != nil {
		t.Fatal(err)
	}
	l.file.Close() // as kill -9 leaves it

	next := beginExits(t, dir, ownIdentity())
	if got := ReadExits(dir); len(got) != 2 || got[0].Alloc.Counter != 1 || got[1].Alloc.Counter != 3 || got[1].ExitCode != 3 {
		t.Fatalf("exits: %+v", got)
	}
	if !next.has(exitOf(1).Alloc) || next.has(exitOf(2).Alloc) {
		t.Error("the next supervisor must know what has ended before it")
	}
	if err := ForgetExits(dir, []muster.AllocID{exitOf(1).Alloc, exitOf(3).Alloc, exitOf(9).Alloc}); err != nil {
		t.Fatal(err)
	}
	if got := ReadExits(dir); len(got) != 0 {
		t.Errorf("not forgotten: %+v", got)
	}
	next.close()
	beginExits(t, dir, identity{pid: os.Getpid(), start: 2}).close()
	if left, err := os.ReadDir(exitDir(dir)); err != nil || len(left) != 0 {
		t.Errorf("files in which nothing is left to learn stay: %v %v", left, err)
	}
}

// The file stays small however many tasks come and go, and loses none that is not forgotten.
func TestTheFileOfExitsStaysSmall(t *testing.T) {
	dir := t.TempDir()
	l := beginExits(t, dir, ownIdentity())
	defer l.close()
	for n := uint64(1); n <= 3000; n++ {
		s := exitOf(n)
		s.Message = strings.Repeat("x", 200)
		if err := l.write(s); err != nil {
			t.Fatal(err)
		}
		if n%100 != 0 {
			if err := l.forget(s.Alloc); err != nil {
				t.Fatal(err)
			}
		}
	}
	info, err := os.Stat(l.path)
	if err != nil || info.Size() > 2*compactAt {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	if got := ReadExits(dir); len(got) != 30 || got[29].Alloc.Counter != 3000 {
		t.Errorf("%d exits", len(got))
	}
}
