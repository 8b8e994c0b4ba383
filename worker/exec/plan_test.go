package exec

import (
	"testing"
	"time"

	"github.com/musterhpc/muster"
)

// at is a reading of the clock.
func at(s float64) BootTime { return BootTime(s * float64(time.Second)) }

// timeline asks a plan each 100 ms what is due and gives what it said, with the second at which it did.
func timeline(p *Plan, asks map[BootTime]muster.Stop, until BootTime) map[Action]float64 {
	said := map[Action]float64{}
	for now := p.started; now <= until; now = now.Add(100 * time.Millisecond) {
		if stop, ok := asks[now]; ok {
			p.Ask(stop, now)
		}
		for todo := p.Due(now); todo != ActNothing; todo = p.Due(now) {
			if _, ok := said[todo]; !ok {
				said[todo] = float64(now) / float64(time.Second)
			}
			if todo == ActKill {
				break
			}
		}
	}
	return said
}

func TestThePlanOfAStop(t *testing.T) {
	save := muster.Stop{Mode: muster.StopSave, Class: muster.ClassPreempted, Reason: "preempted"}
	term := muster.Stop{Mode: muster.StopTerm, Class: muster.ClassCancelled, Reason: "cancelled"}
	kill := muster.Stop{Mode: muster.StopKill, Class: muster.ClassCancelled, Reason: "cancelled now"}
	full := Plan{grace: 10 * time.Second, killTimeout: 5 * time.Second}
	limited := Plan{grace: 10 * time.Second, killTimeout: 5 * time.Second, limit: 30 * time.Second}
	leased := Plan{grace: 10 * time.Second, killTimeout: 5 * time.Second, lease: 60 * time.Second, leaseEnd: at(160)}
	for _, c := range []struct {
		name  string
		plan  Plan
		asks  map[BootTime]muster.Stop
		want  map[Action]float64
		class muster.Class
	}{
		{"nothing is asked", full, nil, map[Action]float64{}, muster.ClassNone},
		{"save", full, map[BootTime]muster.Stop{at(110): save}, map[Action]float64{ActSave: 110, ActTerm: 120, ActKill: 125}, muster.ClassPreempted},
		{"no grace: the kill signal at once", Plan{killTimeout: 5 * time.Second}, map[BootTime]muster.Stop{at(110): save},
			map[Action]float64{ActSave: 110, ActTerm: 110, ActKill: 115}, muster.ClassPreempted},
		{"term", full, map[BootTime]muster.Stop{at(110): term}, map[Action]float64{ActTerm: 110, ActKill: 115}, muster.ClassCancelled},
		{"kill", full, map[BootTime]muster.Stop{at(110): kill}, map[Action]float64{ActKill: 110}, muster.ClassCancelled},
		{"save, then term", full, map[BootTime]muster.Stop{at(110): save, at(112): term},
			map[Action]float64{ActSave: 110, ActTerm: 112, ActKill: 117}, muster.ClassCancelled},
		{"term, then save changes nothing", full, map[BootTime]muster.Stop{at(110): term, at(112): save},
			map[Action]float64{ActTerm: 110, ActKill: 115}, muster.ClassCancelled},
		{"time limit", limited, nil, map[Action]float64{ActSave: 120, ActTerm: 130, ActKill: 135}, muster.ClassTimeout},
		{"time limit without grace", Plan{killTimeout: 5 * time.Second, limit: 30 * time.Second}, nil,
			map[Action]float64{ActSave: 130, ActTerm: 130, ActKill: 135}, muster.ClassTimeout},
		{"a save after the time limit's own changes nothing", limited, map[BootTime]muster.Stop{at(125): save},
			map[Action]float64{ActSave: 120, ActTerm: 130, ActKill: 135}, muster.ClassTimeout},
		{"a limit shorter than the grace", Plan{grace: time.Minute, killTimeout: time.Second, limit: 5 * time.Second}, nil,
			map[Action]float64{ActSave: 100, ActTerm: 105, ActKill: 106}, muster.ClassTimeout},
		{"lease", leased, nil, map[Action]float64{ActKill: 154}, muster.ClassNode},
		{"a lease ends a stop too, whose class stays", leased, map[BootTime]muster.Stop{at(150): save},
			map[Action]float64{ActSave: 150, ActKill: 154}, muster.ClassPreempted},
	} {
		p := c.plan
		p.started = at(100)
		got := timeline(&p, c.asks, at(200))
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		for todo, when := range c.want {
			if got[todo] != when {
				t.Errorf("%s: action %d at %v, want %v", c.name, todo, got[todo], when)
			}
		}
		if c.class != 0 && p.stop.Class != c.class {
			t.Errorf("%s: class %s, want %s", c.name, p.stop.Class, c.class)
		}
	}
}

func TestALeaseGoesForwardOnlyAndNotAfterItsEnd(t *testing.T) {
	p := Plan{lease: 10 * time.Second, leaseEnd: at(110), started: at(100)}
	if !p.Extend(at(115), at(105)) || !p.Extend(at(111), at(106)) || p.leaseEnd != at(115) {
		t.Errorf("the end is %v", p.leaseEnd)
	}
	if p.Due(at(112.9)) != ActNothing {
		t.Error("killed before its time")
	}
	// A machine that was suspended: the first look is long after the end, and an answer waits in the socket.
	if p.Extend(at(999), at(500)) {
		t.Error("extended after the end")
	}
	if p.Due(at(500)) != ActKill || p.stop.Class != muster.ClassNode || p.stop.Reason != "no contact with the servers for 10s" {
		t.Errorf("not killed: %+v", p.stop)
	}
}
