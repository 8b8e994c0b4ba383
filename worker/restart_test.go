package worker

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

func TestAnAgentThatStartsAgainFindsItsTasksAndStartsNothingTwice(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	end := n.agent()
	c := n.run(s, id(1))
	c.view(at(11), false, nil, lone(id(2)))
	c.renewed(c.awaitRenew(id(2)))
	n.machine.awaitRunning(t, id(2))
	end()
	n.machine.exit(id(2), 0) // while no agent is there

	n.agent()
	c = s.accept(t)
	if r := find(t, c.hello.GetAllocs(), id(1)); r.Phase != muster.AllocRunning {
		t.Errorf("it says of what runs: %+v", r)
	}
	if r := find(t, c.hello.GetAllocs(), id(2)); r.Phase != muster.AllocEnded || r.ExitCode != 0 || r.Class != muster.ClassNone {
		t.Errorf("it says of what ended meanwhile: %+v", r)
	}
	c.welcome()
	c.view(at(20), true, nil, lone(id(1)), lone(id(3)))
	c.renewed(c.awaitRenew(id(3)))
	n.machine.awaitRunning(t, id(3))
	if starts := n.machine.starts(); starts[id(1)] != 1 || starts[id(3)] != 1 {
		t.Errorf("started: %v", starts)
	}
}

// A server may read what an agent said long after: it must tell which hello came first.
func TestSessionsAreNumberedOverAgents(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	last := uint64(0)
	for range 2 {
		end := n.agent()
		for range 2 {
			c := s.accept(t)
			if number := c.hello.GetNode().GetNumber(); number <= last {
				t.Errorf("session %d after %d", number, last)
			} else {
				last = number
			}
			c.send(&wire.ToWorker{Message: &wire.ToWorker_Error{Error: &wire.Error{Message: "bye"}}})
		}
		end()
	}
}

// The agent died between the intent and the fork, or the supervisor died too: nobody can tell, so it is never started again.
func TestAnIntentWithoutAProcessIsAnEndedAttempt(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	end := n.agent()
	n.run(s, id(1))
	end()
	n.machine.killSupervisor()

	n.agent()
	c := s.accept(t)
	r := find(t, c.hello.GetAllocs(), id(1))
	if r.Phase != muster.AllocEnded || r.Class != muster.ClassNode || !strings.Contains(r.Message, "node node-1") {
		t.Errorf("%+v", r)
	}
	c.welcome()
	c.view(at(20), true, nil, lone(id(1))) // the server has not applied it yet
	c.renewed(c.awaitRenew(muster.AllocID{}))
	if starts := n.machine.starts(); len(starts) != 0 {
		t.Errorf("started: %v", starts)
	}
}

func TestTasksEndWithTheirSupervisorAndNewOnesGetANewOne(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.agent()
	c := n.run(s, id(1))
	n.machine.killSupervisor()
	report, ended := c.awaitReport(id(1), muster.AllocEnded)
	if ended.Class != muster.ClassNode || !strings.Contains(ended.Message, "its supervisor on node node-1 died") {
		t.Errorf("%+v", ended)
	}
	c.ack(report.GetSeq())
	c.view(at(12), false, []muster.AllocID{id(1)}, lone(id(2)))
	c.renewed(c.awaitRenew(id(2)))
	n.machine.awaitRunning(t, id(2))
}

func TestABrokenConnectionToALivingSupervisorEndsNothing(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.agent()
	c := n.run(s, id(1))
	n.machine.disconnect()
	n.machine.await(t, "a new connection", func() bool { return len(n.machine.feeds) > 0 })
	n.machine.exit(id(1), 3)
	if _, ended := c.awaitReport(id(1), muster.AllocEnded); ended.Class != muster.ClassExit || ended.ExitCode != 3 {
		t.Errorf("%+v", ended)
	}
}

func TestTasksOfASupervisorThatCannotBeReachedAreNotRenewed(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.agent()
	c := n.run(s, id(1))
	n.machine.mu.Lock()
	n.machine.silent = true
	n.machine.mu.Unlock()
	n.machine.disconnect()
	c.view(at(1), false, nil) // is older: the worker hangs up, and renews all when it is welcome again
	c = s.accept(t)
	c.welcome()
	c.renewed(c.awaitRenew(muster.AllocID{}))
	n.machine.pass(lease - time.Second)
	n.machine.await(t, "killed past its supervisor", func() bool { return n.machine.tasks[id(1)].killed > 0 })
}

// A supervisor that answers nothing gets no lease for its tasks, and what it doesn't kill in time the agent kills.
func TestASilentSupervisorsTasksAreNotRenewedAndKilledPastIt(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.agent()
	c := n.run(s, id(1))
	n.machine.mu.Lock()
	n.machine.silent = true
	n.machine.mu.Unlock()
	go func() {
		for {
			select {
			case m := <-c.in:
				if r := m.GetRenew(); r != nil {
					if names(r, id(1)) {
						t.Error("renewed although its supervisor is silent")
					}
					_ = c.stream.Send(&wire.ToWorker{Message: &wire.ToWorker_Renewed{Renewed: &wire.Renewed{Seq: r.GetSeq()}}})
				}
			case <-c.over:
				return
			}
		}
	}()
	n.machine.pass(lease - time.Second)
	n.machine.await(t, "killed past its supervisor", func() bool { return n.machine.tasks[id(1)].killed > 0 })
	n.machine.mu.Lock()
	n.machine.silent = false
	n.machine.mu.Unlock()
}
