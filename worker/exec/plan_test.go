package exec

import (
	"testing"
	"time"

	"github.com/musterhpc/muster"
)

// at is a reading of the clock.
func at(s float64) BootTime { return BootTime(s * float64(time.Second)) }

// timeline asks a plan each 100 ms what is due and gives what it said, with the second at which it did.
func timeline(p *plan, asks map[BootTime]muster.Stop, until BootTime) map[action]float64 {
	said := map[action]float64{}
	for now := p.started; now <= until; now = now.Add(100 * time.Millisecond) {
		if stop, ok := asks[now]; ok {
			p.ask(stop, now)
		}
		for todo := p.due(now); todo != actNothing; todo = p.due(now) {
			if _, ok := said[todo]; !ok {
				said[todo] = float64(now) / float64(time.Second)
			}
			if todo == actKill {
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
	full := plan{grace: 10 * time.Second, killTimeout: 5 * time.Second}
	limited := plan{grace: 10 * time.Second, killTimeout: 5 * time.Second, limit: 30 * time.Second}
	leased := plan{grace: 10 * time.Second, killTimeout: 5 * time.Second, lease: 60 * time.Second, leaseEnd: at(160)}
	for _, c := range []struct {
		name  string
		plan  plan
		asks  map[BootTime]muster.Stop
		want  map[action]float64
		class muster.Class
	}{
		{"nothing is asked", full, nil, map[action]float64{}, muster.ClassNone},
		{"save", full, map[BootTime]muster.Stop{at(110): save}, map[action]float64{actSave: 110, actTerm: 120, actKill: 125}, muster.ClassPreempted},
		{"no grace: the kill signal at once", plan{killTimeout: 5 * time.Second}, map[BootTime]muster.Stop{at(110): save},
			map[action]float64{actSave: 110, actTerm: 110, actKill: 115}, muster.ClassPreempted},
		{"term", full, map[BootTime]muster.Stop{at(110): term}, map[action]float64{actTerm: 110, actKill: 115}, muster.ClassCancelled},
		{"kill", full, map[BootTime]muster.Stop{at(110): kill}, map[action]float64{actKill: 110}, muster.ClassCancelled},
		{"save, then term", full, map[BootTime]muster.Stop{at(110): save, at(112): term},
			map[action]float64{actSave: 110, actTerm: 112, actKill: 117}, muster.ClassCancelled},
		{"term, then save changes nothing", full, map[BootTime]muster.Stop{at(110): term, at(112): save},
			map[action]float64{actTerm: 110, actKill: 115}, muster.ClassCancelled},
		{"time limit", limited, nil, map[action]float64{actSave: 120, actTerm: 130, actKill: 135}, muster.ClassTimeout},
		{"time limit without grace", plan{killTimeout: 5 * time.Second, limit: 30 * time.Second}, nil,
			map[action]float64{actSave: 130, actTerm: 130, actKill: 135}, muster.ClassTimeout},
		{"a save after the time limit's own changes nothing", limited, map[BootTime]muster.Stop{at(125): save},
			map[action]float64{actSave: 120, actTerm: 130, actKill: 135}, muster.ClassTimeout},
		{"a limit shorter than the grace", plan{grace: time.Minute, killTimeout: time.Second, limit: 5 * time.Second}, nil,
			map[action]float64{actSave: 100, actTerm: 105, actKill: 106}, muster.ClassTimeout},
		{"lease", leased, nil, map[action]float64{actKill: 154}, muster.ClassNode},
		{"a lease ends a stop too, whose class stays", leased, map[BootTime]muster.Stop{at(150): save},
			map[action]float64{actSave: 150, actKill: 154}, muster.ClassPreempted},
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
	p := plan{lease: 10 * time.Second, leaseEnd: at(110), started: at(100)}
	if !p.extend(at(115), at(105)) || !p.extend(at(111), at(106)) || p.leaseEnd != at(115) {
		t.Errorf("the end is %v", p.leaseEnd)
	}
	if p.due(at(112.9)) != actNothing {
		t.Error("killed before its time")
	}
	// A machine that was suspended: the first look is long after the end, and an answer waits in the socket.
	if p.extend(at(999), at(500)) {
		t.Error("extended after the end")
	}
	if p.due(at(500)) != actKill || p.stop.Class != muster.ClassNode || p.stop.Reason != "no contact with the servers for 10s" {
		t.Errorf("not killed: %+v", p.stop)
	}
}
