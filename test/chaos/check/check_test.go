package check

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster"
)

func TestACalmRunBreaksNoPromise(t *testing.T) {
	if r := All(calm()); len(r.Violations) > 0 || len(r.Notes) > 0 {
		t.Errorf("a run in which all went well is refused:\n%s", r)
	}
}

// A story is the calm run with one thing told otherwise.
type story struct {
	name  string
	tell  func(h *History)
	wants string // part of what the checker says; "" = it accepts
}

func judge(t *testing.T, checker func(*History) []Violation, stories []story) {
	t.Helper()
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			h := calm()
			s.tell(h)
			found := checker(h)
			switch {
			case s.wants == "" && len(found) > 0:
				t.Errorf("refused: %v", found)
			case s.wants != "" && !slices.ContainsFunc(found, func(v Violation) bool { return strings.Contains(v.Message, s.wants) }):
				t.Errorf("found %v, want one that says %q", found, s.wants)
			}
		})
	}
}

func TestSubmissions(t *testing.T) {
	judge(t, Submissions, []story{
		{"an acknowledged job is nowhere in the end", func(h *History) {
			h.submit("anna", 40, "gone", 77)
		}, "job 77 (gone) was acknowledged at +40.000s and does not exist"},
		{"a retry made a second job", func(h *History) {
			h.submit("anna", 1.5, "pair", 9)
		}, "a retry made second jobs"},
		{"a retry was answered like the first try", func(h *History) {
			h.submit("anna", 1.5, "pair", 1)
		}, ""},
		{"two requests were given one number", func(h *History) {
			h.submit("anna", 1.5, "other", 1)
		}, "job 1 was given to request r-pair and to request r-other"},
		{"a try without an answer and the next one both made a job", func(h *History) {
			h.call(Call{Client: "anna", Op: OpSubmit, Request: "r-x", Names: []string{"x"}, Outcome: Unknown}, 40)
			h.Final.Jobs = append(h.Final.Jobs, Job{ID: 80, Name: "x", State: "succeeded"}, Job{ID: 81, Name: "x", State: "succeeded"})
		}, "exists as jobs [80 81]"},
		{"a submission without an answer is not there", func(h *History) {
			h.call(Call{Client: "anna", Op: OpSubmit, Request: "r-x", Names: []string{"x"}, Outcome: Unknown}, 40)
		}, ""},
		{"a number names another job in the end", func(h *History) {
			h.job(1).Name = "lone"
		}, "acknowledged as pair and is lone"},
	})
}

func TestCancels(t *testing.T) {
	judge(t, Cancels, []story{
		{"a job cancelled while it waited starts all the same", func(h *History) {
			h.run("1-9", 3, 1, 0, "w1", 3, 8, 9)
		}, "what is not placed never starts"},
		{"a placed one starts in the time in which it may not know yet", func(h *History) {
			h.run("1-9", 4, 1, 0, "w1", 3, 20.5, 21)
		}, ""},
		{"it runs on for longer than a lease", func(h *History) {
			h.edit("1-4", Ended, func(e *Event) { e.Gone, e.Time = 36*second, 36*second })
		}, "ran until +36.000s, later than one lease (15s)"},
		{"its worker says that it is gone, its own lines say otherwise", func(h *History) {
			h.beat(Event{Node: "w2", Job: 4, Attempt: 1, PID: 1080}, 36)
		}, "itself wrote at +36.000s"},
		{"its machine stood still and killed it when it woke", func(h *History) {
			h.beat(Event{Node: "w2", Job: 4, Attempt: 1, PID: 1080}, 40.3)
			h.edit("1-4", Ended, func(e *Event) { e.Gone, e.Time = seconds(40.4), seconds(40.5) })
			h.Faults = append(h.Faults, Fault{Kind: "machine suspended", Start: 19 * second, End: 40 * second, Suspended: []string{"w2"}})
		}, ""},
		{"its machine woke and let it run on", func(h *History) {
			h.beat(Event{Node: "w2", Job: 4, Attempt: 1, PID: 1080}, 43)
			h.Faults = append(h.Faults, Fault{Kind: "machine suspended", Start: 19 * second, End: 40 * second, Suspended: []string{"w2"}})
		}, "itself wrote at +43.000s"},
		{"it is pending in the end", func(h *History) { h.job(3).State = "pending" }, "is pending in the end"},
		{"a cancel that was refused promises nothing", func(h *History) {
			h.call(Call{Client: "anna", Op: OpCancel, Jobs: []muster.JobID{2}, Outcome: Refused, Refusal: muster.KindUnavailable}, 5)
		}, ""},
	})
}

func TestLinearizable(t *testing.T) {
	unknownCancel := func(h *History, at float64) {
		h.call(Call{Client: "cleo", Op: OpCancel, Request: "u", Jobs: []muster.JobID{50}, Outcome: Unknown}, at)
	}
	judge(t, Linearizable, []story{
		{"a job that was acknowledged is not found", func(h *History) {
			h.call(Call{Client: "bert", Op: OpGet, Jobs: []muster.JobID{1}, Outcome: Refused, Refusal: muster.KindNotFound}, 8)
		}, "about job 1"},
		{"it is not found before it is acknowledged", func(h *History) {
			h.call(Call{Client: "bert", Op: OpGet, Jobs: []muster.JobID{1}, Outcome: Refused, Refusal: muster.KindNotFound}, 0.97)
		}, ""},
		{"a list of everything lacks it", func(h *History) {
			h.call(Call{Client: "bert", Op: OpList, Complete: true, Seen: []Seen{{Job: 2, Name: "lone", State: "running", Attempt: 1}}}, 8)
		}, "about job 1"},
		{"a list of some lacks it", func(h *History) {
			h.call(Call{Client: "bert", Op: OpList, Seen: []Seen{{Job: 2, Name: "lone", State: "running", Attempt: 1}}}, 8)
		}, ""},
		{"a job that ran is pending in the same attempt, and running again", func(h *History) {
			h.get("bert", 10, 1, 10, Seen{State: "pending", Attempt: 1})
			h.get("bert", 11, 1, 11, Seen{State: "running", Attempt: 1})
		}, "about job 1"},
		{"a stale read may show the past", func(h *History) {
			h.get("bert", 56, 2, 9, Seen{State: "running", Attempt: 1}).Stale = true
		}, ""},
		{"a read that is not stale may not", func(h *History) {
			h.get("bert", 56, 2, 9, Seen{State: "running", Attempt: 1})
		}, "about job 2"},
		{"a cancelled job runs when the cancel is acknowledged", func(h *History) {
			h.get("bert", 20.5, 4, 20, Seen{State: "running", Attempt: 1})
		}, "about job 4"},
		{"it may be stopping then", func(h *History) {
			h.get("bert", 20.5, 4, 20, Seen{State: "stopping", Attempt: 1})
		}, ""},
		{"a cancel without an answer takes effect much later", func(h *History) {
			h.submit("cleo", 30, "late", 50)
			unknownCancel(h, 31)
			h.get("bert", 70, 50, 70, Seen{State: "running", Attempt: 1})
			h.get("bert", 80, 50, 80, Seen{State: "cancelled", Attempt: 1})
		}, ""},
		{"a cancel without an answer takes effect, and then not", func(h *History) {
			h.submit("cleo", 30, "late", 50)
			unknownCancel(h, 31)
			h.get("bert", 70, 50, 70, Seen{State: "stopping", Attempt: 1})
			h.get("bert", 75, 50, 75, Seen{State: "cancelled", Attempt: 1})
			h.get("bert", 80, 50, 80, Seen{State: "running", Attempt: 2})
		}, "about job 50"},
		{"nobody asked for the cancel", func(h *History) {
			h.submit("cleo", 30, "late", 50)
			h.get("bert", 80, 50, 80, Seen{State: "cancelled", Attempt: 1})
		}, "about job 50"},
		{"a job is there before anybody submitted it", func(h *History) {
			h.get("bert", 0.9, 1, 0.9, Seen{State: "pending"})
		}, "about job 1"},
		{"a cancel is acknowledged before the job is submitted", func(h *History) {
			h.cancel("anna", 0.9, 1)
		}, "about job 1"},
		{"a wait ends before the job", func(h *History) {
			h.call(Call{Client: "bert", Op: OpWait, Jobs: []muster.JobID{2}, Seen: []Seen{{Job: 2, State: "succeeded", Attempt: 2}}}, 54)
		}, "about job 2"},
		{"a submission without an answer exists later", func(h *History) {
			h.call(Call{Client: "cleo", Op: OpSubmit, Request: "r-x", Names: []string{"x"}, Outcome: Unknown}, 30)
			h.call(Call{Client: "bert", Op: OpGet, Jobs: []muster.JobID{60}, Outcome: Refused, Refusal: muster.KindNotFound}, 35)
			h.get("bert", 40, 60, 40, Seen{Name: "x", State: "pending"})
		}, ""},
	})
}

func TestStartsOnce(t *testing.T) {
	judge(t, StartsOnce, []story{
		{"an allocation is started again by the next agent", func(h *History) {
			h.edit("1-1", Started, func(e *Event) {
				again := *e
				again.PID, again.Time = 4711, 9*second
				h.Events = append(h.Events, again)
			})
		}, "started twice: at +6.010s as pid 1060"},
		{"the next agent finds the process that runs", func(h *History) {
			h.edit("1-1", Started, func(e *Event) {
				again := *e
				again.Session, again.Time = "a2", 9*second
				h.Events = append(h.Events, again)
			})
		}, ""},
		{"an intent without a process is taken up again", func(h *History) {
			h.edit("1-1", Intent, func(e *Event) {
				again := *e
				again.Session, again.Time = "a2", 9*second
				h.Events = append(h.Events, again)
			})
		}, "was bound to start twice"},
		{"one attempt of a rank has two allocations", func(h *History) {
			h.run("1-9", 2, 2, 0, "w1", 3, 52, 53)
		}, "has two allocations: 1-5 on w2 and 1-9 on w1"},
		{"the tasks' lines show two processes", func(h *History) {
			h.beat(Event{Node: "w2", Job: 2, Attempt: 2, PID: 99}, 55)
		}, "wrote as two processes"},
		{"a task runs that nobody started", func(h *History) {
			h.beat(Event{Node: "w1", Job: 3, Attempt: 1, PID: 99}, 55)
		}, "no worker wrote down that it starts it"},
	})
}

func TestNoOverlap(t *testing.T) {
	// The first attempt of job 2 lives on over the begin of the second, at 50 s.
	survives := func(h *History, until float64) {
		h.edit("1-3", Ended, func(e *Event) { e.Class, e.Gone, e.Time = "exit", seconds(until), seconds(until+0.1) })
	}
	judge(t, NoOverlap, []story{
		{"the first attempt was gone only after the second began", func(h *History) { survives(h, 51) }, "2/0@2 (allocation 1-5 on w2) started at +50.000s while 2/0@1"},
		{"it was gone just before", func(h *History) { survives(h, 49.9) }, ""},
		{"its own lines go on", func(h *History) {
			h.edit("1-3", Started, func(e *Event) { h.beat(*e, 50.5) })
		}, "still wrote at +50.500s"},
		{"its machine had stood still, and killed it on waking", func(h *History) {
			survives(h, 55.5)
			h.edit("1-3", Started, func(e *Event) { h.beat(*e, 55.4) })
			h.Faults = append(h.Faults, Fault{Kind: "machine suspended", Start: 10 * second, End: 55 * second, Suspended: []string{"w1"}})
		}, ""},
		{"its machine had stood still, and took its time to kill", func(h *History) {
			survives(h, 58)
			h.Faults = append(h.Faults, Fault{Kind: "machine suspended", Start: 10 * second, End: 55 * second, Suspended: []string{"w1"}})
		}, "while 2/0@1"},
	})
}

func TestOneOwner(t *testing.T) {
	two := func(h *History, second string) {
		h.call(Call{Client: "bert", Op: OpList, Version: muster.Version{Epoch: 1, Index: 800}, Seen: []Seen{
			{Job: 1, State: "running", Attempt: 1, Ranks: []Rank{{Alloc: "1-1", Node: "w1", State: "running", Slots: []int{0, 1}}}},
			{Job: 2, State: "running", Attempt: 1, Ranks: []Rank{{Alloc: "1-3", Node: "w1", State: second, Slots: []int{1}}}}}}, 8)
	}
	judge(t, OneOwner, []story{
		{"a slot is given away before the process is gone", func(h *History) {
			h.run("1-9", 9, 1, 0, "w1", 0, 15, 17)
		}, "GPU slot 0 of w1 was given to 9/0@1"},
		{"a slot is given away when it is gone", func(h *History) { h.run("1-9", 9, 1, 0, "w1", 0, 16.2, 17) }, ""},
		{"one answer shows a slot twice", func(h *History) { two(h, "running") }, "at version 1/800 GPU slot 1 of w1 is in allocations 1-1 and 1-3"},
		{"one answer shows it with an allocation that ended", func(h *History) { two(h, "ended") }, ""},
		{"two machines with one node's name have a slot of one number", func(h *History) {
			h.run("1-9", 9, 1, 0, "w1", 0, 15, 17)
			for _, kind := range []EventKind{Ready, Intent, Started, Ended} {
				h.edit("1-9", kind, func(e *Event) { e.Machine = "other" })
			}
		}, ""},
	})
}

func TestEndsStay(t *testing.T) {
	judge(t, EndsStay, []story{
		{"a job that succeeded has failed later", func(h *History) {
			h.get("bert", 70, 2, 70, Seen{State: "failed", Attempt: 2, Class: "exit", ExitCode: number(1)})
		}, `job 2 was succeeded in attempt 2, exit code 0 at +61.000s (get of bert) and is failed in attempt 2, class "exit", exit code 1`},
		{"its exit code changes", func(h *History) { h.job(2).ExitCode = number(3) }, "an end never changes"},
		{"it is running in the end", func(h *History) { h.job(2).State = "running" }, "and is running at +120.000s (the end of the run)"},
		{"a stale read shows it before its end", func(h *History) {
			h.get("bert", 70, 2, 56, Seen{State: "running", Attempt: 2}).Stale = true
		}, ""},
		{"two servers differ at one version", func(h *History) {
			h.get("bert", 70, 2, 55, Seen{State: "stopping", Attempt: 2}).Stale = true
		}, "two servers hold different states"},
		{"a job goes back to an earlier attempt at a later version", func(h *History) {
			h.get("bert", 70, 2, 58, Seen{State: "running", Attempt: 1}).Stale = true
		}, "it went back"},
		{"an allocation that ended runs", func(h *History) {
			h.get("bert", 62, 2, 62, Seen{State: "succeeded", Attempt: 2, ExitCode: number(0), Ranks: []Rank{rank("1-5", 0, 2, "w2", 2)}})
			h.job(2).Ranks[1].State = "running"
		}, "allocation 1-5 was exit code 0"},
	})
}

func TestGangs(t *testing.T) {
	judge(t, Gangs, []story{
		{"a rank starts before the other is ready", func(h *History) {
			h.edit("1-2", Ready, func(e *Event) { e.Time = seconds(6.005) })
		}, "started at +6.000s, before the last rank of attempt 1 was ready at +6.005s"},
		{"a rank starts, the other never gets ready", func(h *History) {
			h.Events = slices.DeleteFunc(h.Events, func(e Event) bool { return e.Alloc == "1-2" })
		}, "with only 1 of the 2 ranks of attempt 1 ever ready"},
		{"both were ready, and the machine of one died before it started", func(h *History) {
			h.Events = slices.DeleteFunc(h.Events, func(e Event) bool { return e.Alloc == "1-2" && e.Kind != Ready })
			h.job(1).State = "failed"
		}, ""},
		{"it succeeded although one never started", func(h *History) {
			h.Events = slices.DeleteFunc(h.Events, func(e Event) bool { return e.Alloc == "1-2" && e.Kind != Ready })
		}, "only 1 of 2 ranks ever started"},
		{"an answer shows half a gang placed", func(h *History) {
			h.get("bert", 8, 1, 8, Seen{State: "preparing", Attempt: 1, Count: 2, Ranks: []Rank{{Alloc: "1-1", Attempt: 1, Node: "w1", State: "ready"}}})
		}, "with 1 of its 2 ranks placed"},
	})
}

func TestExits(t *testing.T) {
	judge(t, Exits, []story{
		{"the API says another exit code than the journal", func(h *History) {
			h.edit("1-1", Ended, func(e *Event) { e.Class, e.ExitCode = "exit", 3 })
		}, `the journal says class "exit", exit code 3, the API says exit code 0`},
		{"the journal holds two ends", func(h *History) {
			h.edit("1-1", Ended, func(e *Event) {
				again := *e
				again.Class, again.ExitCode = "exit", 9
				h.Events = append(h.Events, again)
			})
		}, "ended twice in the journal"},
		{"an end was never reported", func(h *History) {
			h.job(1).Ranks[0].State = "running"
		}, "the end was never reported"},
		{"an end is counted twice", func(h *History) {
			h.job(2).Attempts = append(h.job(2).Attempts, Attempt{Number: 2})
		}, "has attempt 2 twice"},
		{"the API made up an exit", func(h *History) {
			h.Events = slices.DeleteFunc(h.Events, func(e Event) bool { return e.Alloc == "1-1" && e.Kind == Ended })
		}, "the journal knows of no end"},
		{"one that ended by itself is called lost, with nothing wrong", func(h *History) {
			h.job(1).Ranks[0].Class, h.Faults = "node", nil
		}, "calls it lost though nothing was wrong"},
		{"one that ended by itself on a machine that was cut off is called lost", func(h *History) {
			h.edit("1-3", Ended, func(e *Event) { e.Class, e.Gone = "", 40*second })
		}, ""},
	})
}

func TestDigests(t *testing.T) {
	judge(t, Digests, []story{
		{"two servers differ at one index", func(h *History) { h.Digests[1].Digest = "cd" }, "at index 1000 of epoch 1 s1 has digest ab"},
		{"another index", func(h *History) { h.Digests[1].Digest, h.Digests[1].Index = "cd", 1001 }, ""},
		{"another feature level", func(h *History) { h.Digests[1].Digest, h.Digests[1].Level = "cd", 2 }, ""},
		{"a counter is not what a recount says", func(h *History) {
			h.Digests[1].Broken = "node 2: 3 free slots, counted 4"
		}, "3 free slots, counted 4"},
	})
}

func TestSessions(t *testing.T) {
	judge(t, Sessions, []story{
		{"a stale read is answered from an older state than the one before", func(h *History) {
			h.get("bert", 70, 2, 60.5, Seen{State: "succeeded", Attempt: 2}).Stale = true
		}, "session bert of bert read version 1/6100"},
		{"in another session it may be", func(h *History) {
			h.get("cleo", 70, 2, 60.5, Seen{State: "succeeded", Attempt: 2}).Stale = true
		}, ""},
		{"in another session it may not, unless it is stale", func(h *History) {
			h.get("cleo", 70, 2, 60.5, Seen{State: "succeeded", Attempt: 2})
		}, "not linearizable"},
		{"two reads at one time may be answered in any order", func(h *History) {
			h.get("cleo", 61.02, 2, 60.5, Seen{State: "succeeded", Attempt: 2})
		}, ""},
		{"a new epoch is newer at any index", func(h *History) {
			h.get("bert", 70, 2, 1, Seen{State: "succeeded", Attempt: 2}).Version.Epoch = 2
		}, ""},
	})
}

func TestNothingOutlives(t *testing.T) {
	judge(t, NothingOutlives, []story{
		{"a process is left of an allocation that ended", func(h *History) {
			h.Leftovers = []Leftover{{Time: 119 * second, Machine: "w1", PID: 31, Command: "sleep", Alloc: "1-1", Job: 1, Attempt: 1}}
		}, `process 31 on w1 (sleep) is left of allocation "1-1"`},
		{"a process is left of a job that nobody knows", func(h *History) {
			h.Leftovers = []Leftover{{Time: 119 * second, Machine: "w1", PID: 31, Command: "sleep", Job: 500, Attempt: 1}}
		}, "which the state doesn't know"},
		{"what runs in the end may run", func(h *History) {
			h.job(1).State, h.job(1).Ranks[0].State = "running", "running"
			h.Leftovers = []Leftover{{Time: 119 * second, Machine: "w1", PID: 31, Command: "sleep", Alloc: "1-1", Job: 1, Attempt: 1}}
		}, ""},
		{"a task writes after its worker said that it is gone", func(h *History) {
			h.edit("1-1", Started, func(e *Event) { h.beat(*e, 16.3) })
		}, "after its worker had said at +16.000s that it was over"},
		{"a task writes after the API called its job cancelled", func(h *History) {
			h.edit("1-4", Started, func(e *Event) { h.beat(*e, 21.5) })
			h.edit("1-4", Ended, func(e *Event) { e.Gone, e.Time = 22*second, 22*second })
		}, "after get of bert had said at +21.000s that it was over"},
		{"a task writes on until the API calls its job cancelled", func(h *History) {
			h.edit("1-4", Started, func(e *Event) { h.beat(*e, 20.9) })
			h.edit("1-4", Ended, func(e *Event) { e.Gone, e.Time = seconds(20.95), seconds(20.95) })
		}, ""},
	})
}

func TestLiveness(t *testing.T) {
	judge(t, Liveness, []story{
		{"a job still runs a minute after the last fault", func(h *History) { h.job(2).State = "running" }, "job 2 is running in attempt 2, 1m0s after the last fault"},
		{"the loop guard holds it and says why", func(h *History) {
			j := h.job(2)
			j.State, j.Class, j.Reason = "held", "node", "node, GPU or preparation failed five times in a row"
		}, ""},
		{"it is held and nobody says why", func(h *History) { h.job(2).State = "held" }, "held without a reason"},
		{"the state was taken too early", func(h *History) { h.job(2).State, h.Final.Time = "running", 70*second }, "wait 1m0s"},
		{"a job ended, but late", func(h *History) { h.job(2).Ended, h.Final.Time = 140*second, 150*second }, "succeeded at +140.000s only, 1m20s after"},
		{"a new job takes too long", func(h *History) { h.Probes[0].Ran = 156 * second }, "ran after 6s"},
		{"a new job never runs", func(h *History) { h.Probes[0].Ran = 0 }, "never ran"},
		{"nobody tried a new job", func(h *History) { h.Probes = nil }, "no probe job"},
	})
}

func TestAvailability(t *testing.T) {
	// No submission is acknowledged between 80 s and 90 s; one hangs all that time.
	silence := func(h *History) {
		h.Calls = slices.DeleteFunc(h.Calls, func(c Call) bool { return c.Op == OpSubmit && c.End > 80*second && c.End < 90*second })
		h.call(Call{Client: "clock", Op: OpSubmit, Request: "r-hangs", Names: []string{"hangs"}, Outcome: Unknown}, 90).Start = seconds(80.5)
	}
	with := func(f Fault) func(h *History) {
		return func(h *History) {
			silence(h)
			f.Start, f.End = 80*second, 90*second
			h.Faults = append(h.Faults, f)
		}
	}
	one := []Link{{From: "s1", To: "*", Loss: 1}, {From: "*", To: "s1", Loss: 1}}
	judge(t, Availability, []story{
		{"nothing is acknowledged, and nothing is wrong", silence, "from +80.500s to +90.000s (9.5s), though [s1 s2] were up"},
		{"nothing is acknowledged because a majority is down", with(Fault{Kind: "kill", Down: []string{"s1", "s2"}}), ""},
		{"one server down explains nothing", with(Fault{Kind: "kill", Down: []string{"s1"}}), "though [s2 s3] were up"},
		{"one server cut off explains nothing", with(Fault{Kind: "cut", Links: one}), "though [s2 s3] were up"},
		{"one direction cut explains nothing", with(Fault{Kind: "cut", Links: one[:1]}), "though [s2 s3] were up"},
		{"links that lose a third are not judged", with(Fault{Kind: "loss", Links: []Link{{From: "*", To: "*", Loss: 0.3}}}), ""},
		{"links that delay little are", with(Fault{Kind: "delay", Links: []Link{{From: "*", To: "*", Delay: 20 * time.Millisecond}}}), "were up"},
		{"two faults together make a link bad", func(h *History) {
			with(Fault{Kind: "delay", Links: []Link{{From: "*", To: "*", Delay: 30 * time.Millisecond}}})(h)
			h.Faults = append(h.Faults, h.Faults[len(h.Faults)-1])
		}, ""},
		{"clients reach nobody", with(Fault{Kind: "cut", Links: []Link{{From: "clients", To: "*", Loss: 1}}}), ""},
		{"nobody is submitting", func(h *History) {
			h.Calls = slices.DeleteFunc(h.Calls, func(c Call) bool { return c.Op == OpSubmit && c.End > 80*second && c.End < 90*second })
		}, ""},
		{"clients are told again and again that there is no leader", func(h *History) {
			h.Calls = slices.DeleteFunc(h.Calls, func(c Call) bool { return c.Op == OpSubmit && c.End > 80*second && c.End < 90*second })
			for at := 80.5; at < 90; at++ {
				h.call(Call{Client: "clock", Op: OpSubmit, Names: []string{"x"}, Outcome: Refused, Refusal: muster.KindUnavailable}, at)
			}
		}, "though [s1 s2] were up"},
		{"each majority was well for some seconds only", func(h *History) {
			silence(h)
			h.Faults = append(h.Faults, Fault{Kind: "kill", Start: 80 * second, End: 85 * second, Down: []string{"s1"}},
				Fault{Kind: "kill", Start: 85 * second, End: 90 * second, Down: []string{"s2"}},
				Fault{Kind: "kill", Start: 82 * second, End: 83 * second, Down: []string{"s3"}})
		}, ""},
	})
}

func TestTheReportSaysWhatHappened(t *testing.T) {
	h := calm()
	h.call(Call{Client: "anna", Op: OpSubmit, Request: "r-x", Names: []string{"x"}, Outcome: Unknown}, 40)
	h.Digests[1].Digest = "cd"
	got := All(h).String()
	for _, want := range []string{
		"seed               7, 3m20s long\n",
		"faults             1\n",
		"   1 machine killed\n",
		"unknown answers    1\n",
		"jobs               199\n",
		"attempts           199\n",
		"longest recovery   0s, after machine killed\n",
		"violations         1\n  digests: at index 1000",
		"replay             make chaos SEED=7\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the report lacks %q:\n%s", want, got)
		}
	}
}

func TestAReportSaysWhatCouldNotBeJudged(t *testing.T) {
	if r := All(&History{}); len(r.Notes) == 0 || !strings.Contains(r.String(), "not judged") {
		t.Errorf("nothing was written down, and the report is content:\n%s", r)
	}
}

func TestEvidenceIsReadAsItWasWritten(t *testing.T) {
	var file bytes.Buffer
	h := calm()
	h.Leftovers = []Leftover{{Machine: "w1", PID: 3}}
	if err := h.Write(&file); err != nil {
		t.Fatal(err)
	}
	whole := file.String()
	var back History
	if err := back.Read(strings.NewReader(whole)); err != nil || !reflect.DeepEqual(h, &back) {
		t.Fatalf("read again it is another history (%v)", err)
	}
	var cut History
	if err := cut.Read(strings.NewReader(whole[:len(whole)-20])); err != nil || len(cut.Calls) != len(h.Calls) {
		t.Errorf("a last line that was cut off: %v, and %d of %d calls", err, len(cut.Calls), len(h.Calls))
	}
	if err := new(History).Read(strings.NewReader("{\"call\":{}}\nnonsense\n{}\n")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a bad line in the middle gives %v", err)
	}
}

// However many calls there are about however few jobs, and however many of them were never answered, a verdict comes.
func TestTenThousandCallsAreJudgedInTime(t *testing.T) {
	for _, jobs := range []int{1, 1000} {
		t.Run(fmt.Sprintf("%d jobs", jobs), func(t *testing.T) {
			h := &History{Run: Run{End: 1000 * second, Servers: []string{"s1", "s2", "s3"}}}
			for i := range 10_000 {
				id := muster.JobID(i % jobs)
				at := 1 + float64(i)*0.05
				c := h.call(Call{Client: fmt.Sprint("c", i%20), Op: []Op{OpSubmit, OpGet, OpCancel, OpList}[i/jobs%4], Request: fmt.Sprint("r", id),
					Names: []string{fmt.Sprint("n", id)}, Jobs: []muster.JobID{id}, Outcome: []Outcome{OK, Unknown}[i%7%2]}, at)
				c.Start -= 3 * second // sixty calls at a time
				if c.Op == OpGet || c.Op == OpList {
					c.Outcome = OK
					c.Seen = []Seen{{Job: id, Name: fmt.Sprint("n", id), State: "pending", Attempt: uint32(i / jobs / 4)}}
					if i/jobs > 4 {
						c.Seen[0].State, c.Seen[0].Attempt = "stopping", 1
					}
					c.Version = muster.Version{Epoch: 1, Index: muster.Index(i)}
				}
			}
			for i := range 400 {
				from := Instant(i) * second
				h.Faults = append(h.Faults, Fault{Kind: "kill", Start: from, End: from + 2*second, Down: []string{"s1"}})
			}
			began := time.Now()
			All(h)
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}
