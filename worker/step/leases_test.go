package step

import (
	"testing"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/worker/exec"
)

func boot(d time.Duration) exec.BootTime { return exec.BootTime(d) }

func TestLeasesCountFromTheSendingOfAnAnsweredRenewal(t *testing.T) {
	l := newLeases()
	length := func(muster.AllocID) time.Duration { return time.Minute }
	if l.holds(id(1), time.Minute, 0) {
		t.Error("a lease that nobody gave")
	}
	first := l.send(boot(100*time.Second), []muster.AllocID{id(1)})
	second := l.send(boot(110*time.Second), []muster.AllocID{id(1), id(2)})
	if got := l.first(id(1), time.Minute, boot(115*time.Second)); got != boot(160*time.Second) {
		t.Errorf("prepared with %v", time.Duration(got))
	}
	l.answered(second, length)
	if l.ends[id(1)] != boot(170*time.Second) {
		t.Errorf("ends at %v", time.Duration(l.ends[id(1)]))
	}
	if moved := l.answered(first, length); len(moved) != 0 { // late: it must not take anything back
		t.Errorf("moved %v", moved)
	}
	if l.answered(second, length) != nil || l.answered(99, length) != nil {
		t.Error("an answer twice, or to nothing")
	}
	for at, holds := range map[time.Duration]bool{163: true, 164: false, 170: false} { // the kill is 6 s before the end
		if l.holds(id(1), time.Minute, boot(at*time.Second)) != holds {
			t.Errorf("at %d s: %v", at, !holds)
		}
	}
	for at, overdue := range map[time.Duration]bool{164: false, 167: false, 168: true} {
		if l.overdue(id(1), time.Minute, boot(at*time.Second)) != overdue {
			t.Errorf("overdue at %d s: %v", at, !overdue)
		}
	}
	lost := l.send(boot(112*time.Second), []muster.AllocID{id(1)})
	after := l.send(boot(115*time.Second), []muster.AllocID{id(2)})
	if l.oldest() != boot(112*time.Second) {
		t.Error("a renewal without an answer isn't noticed")
	}
	l.answered(after, length) // so the server does answer
	if l.oldest() != 0 {
		t.Error("one that got lost before makes the server look silent")
	}
	if moved := l.answered(lost, length); len(moved) != 1 || l.ends[id(1)] != boot(172*time.Second) {
		t.Error("one that was only late doesn't count")
	}
	third := l.send(boot(120*time.Second), []muster.AllocID{id(1)})
	l.hangUp() // the stream is gone, and with it every answer
	if l.answered(third, length) != nil || l.oldest() != 0 {
		t.Error("an answer over another stream counts")
	}
}

func TestRenewalsAreOftenEnough(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{0: 5 * time.Second, time.Minute: 5 * time.Second, 12 * time.Second: 2 * time.Second} {
		if got := renewEvery(lease); got != want {
			t.Errorf("lease %v: every %v", lease, got)
		}
	}
	// A silent server is left while there is time for two others.
	for _, lease := range []time.Duration{muster.MinLease, muster.DefaultLease, time.Hour} {
		if p := Patience(lease); p > lease/3+time.Second || p > 10*time.Second {
			t.Errorf("lease %v: waits %v", lease, p)
		}
	}
}
