package duty

import (
	"testing"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

func TestABackoffIsMeasuredFromWhenThisLeaderSawIt(t *testing.T) {
	s := newLeaseStory(t)
	retried := smallJob("retried")
	retried.Groups[0].Retry = muster.Retry{Attempts: 1, On: []muster.Class{muster.ClassExit}, Delay: 10 * time.Second, MaxDelay: time.Minute}
	a := s.place(retried)
	s.apply(&state.ReportAllocs{Node: 1, Allocs: []muster.AllocReport{{ID: a.ID, Phase: muster.AllocEnded, Class: muster.ClassExit, ExitCode: 1}}})
	job, _ := s.snapshot().Job(a.Job)
	if job.Backoff == 0 {
		t.Fatal("the job does not back off")
	}
	delays := Backoffs{}
	if due := delays.Due(s.now, s.snapshot()); len(due) != 0 {
		t.Fatal("due at once")
	}
	if due := delays.Due(s.now+Boot(job.Backoff)-1, s.snapshot()); len(due) != 0 {
		t.Fatal("due early")
	}
	if due := delays.Due(s.now+Boot(job.Backoff), s.snapshot()); len(due) != 1 || due[0] != a.Job {
		t.Fatalf("due: %v, want %v", due, a.Job)
	}
	s.apply(&state.Wake{Term: 1, Jobs: []muster.JobID{a.Job}})
	if delays.Due(s.now, s.snapshot()); len(delays) != 0 {
		t.Fatal("a job that was woken is remembered")
	}
}

func TestEndedJobsAreForgottenOldestFirst(t *testing.T) {
	s := newLeaseStory(t)
	now := time.UnixMilli(0).Add(365 * 24 * time.Hour)
	for range 3 {
		a := s.place(smallJob("job"))
		s.apply(&state.ReportAllocs{Node: 1, Allocs: []muster.AllocReport{{ID: a.ID, Phase: muster.AllocEnded, Class: muster.ClassExit}}})
	}
	if jobs := Outlived(s.snapshot(), muster.TimeOf(now.Add(-30*24*time.Hour)), 100); len(jobs) != 3 {
		t.Errorf("after a year: %v are forgotten, want all three", jobs)
	}
	young := time.UnixMilli(1).Add(time.Hour)
	if jobs := Outlived(s.snapshot(), muster.TimeOf(young.Add(-30*24*time.Hour)), 100); len(jobs) != 0 {
		t.Errorf("after an hour: %v are forgotten, want none", jobs)
	}
	if jobs := Outlived(s.snapshot(), muster.TimeOf(young.Add(-30*24*time.Hour)), 2); len(jobs) != 1 {
		t.Errorf("with room for two: %v are forgotten, want one", jobs)
	}
}
