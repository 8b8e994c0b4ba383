package rpc_test

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/wire"
)

func TestAnyServerTakesASubmissionAndShowsItAtOnce(t *testing.T) {
	c := startCluster(t, 3)
	for i := range c.members {
		client := c.client(rpc.Options{}, i)
		reply, err := client.Submit(soon(t), submission("train"))
		if err != nil {
			t.Fatalf("submitted at s%d: %v", i+1, err)
		}
		if reply.Leader != c.members[0].address {
			t.Errorf("s%d says that the leader is %q, want %q", i+1, reply.Leader, c.members[0].address)
		}
		// Stale on purpose: the server that acknowledged has applied it.
		job, err := c.client(rpc.Options{}, i).GetJob(soon(t), &wire.GetJobRequest{Job: &wire.JobRef{Id: reply.Ids[0]}, Stale: true})
		if err != nil {
			t.Fatalf("read at s%d: %v", i+1, err)
		}
		if job.Name != "train" || job.User != agentUser {
			t.Errorf("s%d shows %s of %s", i+1, job.Name, job.User)
		}
	}
}

func TestARequestIsHeldUntilALeaderIsThere(t *testing.T) {
	c := startCluster(t, 3)
	c.elect(-1)
	submitted := make(chan error, 3)
	for i := range c.members {
		client := c.client(rpc.Options{}, i)
		go func() {
			_, err := client.Submit(soon(t), submission("held"))
			submitted <- err
		}()
	}
	c.elect(2)
	for range c.members {
		if err := <-submitted; err != nil {
			t.Errorf("a held submission failed: %v", err)
		}
	}
	if n := len(c.members[2].jobs()); n != 3 {
		t.Errorf("3 submissions made %d jobs", n)
	}
}

func TestALeaderThatHangsIsLeftForItsSuccessor(t *testing.T) {
	c := startCluster(t, 3)
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	c.members[0].mu.Lock()
	c.members[0].slow = hang
	c.members[0].mu.Unlock()
	read := make(chan error, 1)
	go func() {
		_, err := c.client(rpc.Options{}, 1).ListJobs(soon(t), &wire.ListJobsRequest{})
		read <- err
	}()
	c.members[0].eventually("the leader was asked", func() bool { return c.members[0].reads > 0 })
	c.elect(2)
	if err := <-read; err != nil {
		t.Fatal(err)
	}
}

func TestAnUnknownOutcomeTriedAgainMakesOneJob(t *testing.T) {
	c := startCluster(t, 3)
	for i := range c.members {
		c.mu.Lock()
		c.loseAnswers = 2
		c.mu.Unlock()
		before := len(c.members[0].jobs())
		reply, err := c.client(rpc.Options{}, i).Submit(soon(t), submission("once"))
		if err != nil {
			t.Fatal(err)
		}
		after := c.members[0].jobs()
		if len(after) != before+1 || uint64(after[before]) != reply.Ids[0] {
			t.Errorf("submitted at s%d, answers lost twice: the answer names %v, the jobs are %v", i+1, reply.Ids, after)
		}
	}
}

func TestOneIdWithAnotherContentIsAConflict(t *testing.T) {
	c := startCluster(t, 2)
	client := c.client(rpc.Options{}, 1)
	first := submission("a")
	first.RequestId = "the-id"
	if _, err := client.Submit(soon(t), first); err != nil {
		t.Fatal(err)
	}
	second := submission("b")
	second.RequestId = "the-id"
	if _, err := client.Submit(soon(t), second); muster.KindOf(err) != muster.KindConflict {
		t.Errorf("got %v, want a conflict", err)
	}
}

func TestAStaleReadIsAnsweredByAFrozenServerAndAFreshOneWaits(t *testing.T) {
	c := startCluster(t, 3)
	frozen := c.members[2]
	frozen.freeze(true)
	if _, err := c.client(rpc.Options{}, 0).Submit(soon(t), submission("new")); err != nil {
		t.Fatal(err)
	}
	client := c.client(rpc.Options{}, 2)
	stale, err := client.ListJobs(soon(t), &wire.ListJobsRequest{Stale: true})
	if err != nil || len(stale.Jobs) != 0 {
		t.Fatalf("a stale read of a frozen server gave %v, %v", stale, err)
	}
	fresh := make(chan int, 1)
	go func() {
		reply, err := client.ListJobs(soon(t), &wire.ListJobsRequest{})
		if err != nil {
			t.Error(err)
		}
		fresh <- len(reply.GetJobs())
	}()
	select {
	case n := <-fresh:
		t.Fatalf("a linearizable read of a frozen server did not wait: %d jobs", n)
	case <-time.After(100 * time.Millisecond):
	}
	frozen.freeze(false)
	if n := <-fresh; n != 1 {
		t.Errorf("the read shows %d jobs, want the one that was acknowledged before it", n)
	}
}

func TestStaleReadsNeedNoLeader(t *testing.T) {
	c := startCluster(t, 3)
	if _, err := c.client(rpc.Options{}).Submit(soon(t), submission("kept")); err != nil {
		t.Fatal(err)
	}
	c.elect(-1)
	reply, err := c.client(rpc.Options{}, 1).ListJobs(soon(t), &wire.ListJobsRequest{Stale: true})
	if err != nil || len(reply.Jobs) != 1 {
		t.Fatalf("got %v, %v", reply, err)
	}
	why, err := c.client(rpc.Options{}, 1).Why(soon(t), &wire.WhyRequest{Job: &wire.JobRef{Name: "kept"}, Stale: true})
	if err != nil || why.Note == "" || why.Job.GetName() != "kept" {
		t.Errorf("why without a leader: %v, %v", why, err)
	}
}

func TestReadsThatComeTogetherShareAQuestionToTheLeader(t *testing.T) {
	c := startCluster(t, 2)
	leader := c.members[0]
	slow := make(chan struct{})
	leader.mu.Lock()
	leader.slow = slow
	leader.mu.Unlock()
	client := c.client(rpc.Options{}, 1)
	var reading sync.WaitGroup
	var failed atomic.Int32
	const readers = 50
	for range readers {
		reading.Go(func() {
			if _, err := client.ListJobs(soon(t), &wire.ListJobsRequest{}); err != nil {
				failed.Add(1)
			}
		})
	}
	time.AfterFunc(50*time.Millisecond, func() { close(slow) })
	reading.Wait()
	leader.mu.Lock()
	defer leader.mu.Unlock()
	if failed.Load() > 0 || leader.reads > readers/2 {
		t.Errorf("%d reads cost the leader %d questions, %d failed", readers, leader.reads, failed.Load())
	}
}

func TestWhyIsAskedAtTheLeader(t *testing.T) {
	c := startCluster(t, 3)
	c.elect(1)
	client := c.client(rpc.Options{}, 2)
	if _, err := client.Submit(soon(t), submission("slow")); err != nil {
		t.Fatal(err)
	}
	why, err := client.Why(soon(t), &wire.WhyRequest{Job: &wire.JobRef{Name: "slow"}})
	if err != nil {
		t.Fatal(err)
	}
	if why.Headline != "said by s2" || why.Job.GetName() != "slow" {
		t.Errorf("got %v", why)
	}
}

func TestWithoutALeaderAWriteSaysSoInTheEnd(t *testing.T) {
	c := startCluster(t, 2)
	c.elect(-1)
	_, err := c.client(rpc.Options{Patience: 6 * time.Second}, 1).Submit(soon(t), submission("never"))
	if muster.KindOf(err) != muster.KindUnavailable || !strings.HasPrefix(err.Error(), "no leader: ") {
		t.Errorf("got %v", err)
	}
}

func TestASpecThatIsWrongIsRefusedWithItsPlace(t *testing.T) {
	c := startCluster(t, 1)
	r := submission("fine", "fine-too")
	r.Specs[1].Groups[0].Count = 20_000
	_, err := c.client(rpc.Options{}).Submit(soon(t), r)
	if muster.KindOf(err) != muster.KindInvalid {
		t.Fatalf("got %v", err)
	}
	if e := err.(*muster.Error); !strings.HasPrefix(e.Field, "jobs[1].groups[0]") {
		t.Errorf("the field is %q", e.Field)
	}
	if jobs := c.members[0].jobs(); len(jobs) != 0 {
		t.Errorf("jobs %v were made all the same", jobs)
	}
}

func TestCancelByNameMeansTheCallersOwnJob(t *testing.T) {
	c := startCluster(t, 3)
	client := c.client(rpc.Options{}, 1)
	made, err := client.Submit(soon(t), submission("train", "train"))
	if err != nil {
		t.Fatal(err)
	}
	reply, err := client.Cancel(soon(t), &wire.CancelRequest{Jobs: []*wire.JobRef{{Name: "train"}}})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(reply.Ids, made.Ids[1:]) {
		t.Errorf("cancelled %v, want the newest, %v", reply.Ids, made.Ids[1:])
	}
	if _, err := client.Cancel(soon(t), &wire.CancelRequest{Jobs: []*wire.JobRef{{Name: "nobodys"}}}); muster.KindOf(err) != muster.KindNotFound {
		t.Errorf("an unknown name: %v", err)
	}
}

func TestServersAnswerForThemselvesAndASilentOneIsNamed(t *testing.T) {
	c := startCluster(t, 3)
	c.members[2].rpc.Stop()
	reply, err := c.client(rpc.Options{}, 1).ListServers(soon(t), &wire.ListServersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(reply.Servers) != 3 {
		t.Fatalf("%d servers", len(reply.Servers))
	}
	if s := reply.Servers[0]; !s.Leader || s.Digest == "" || s.Error != "" || !s.Voter {
		t.Errorf("the leader says %v", s)
	}
	if s := reply.Servers[2]; s.Error == "" || s.Name != "s3" || s.Leader {
		t.Errorf("the silent one is shown as %v", s)
	}
}

func TestWhoKeepsCheckpointsOnEachNodesDiskIsTold(t *testing.T) {
	c := startCluster(t, 1)
	r := submission("keeps", "does-not")
	r.Specs[0].Groups[0].Task.Command, r.Specs[0].Groups[0].Task.Args = "train", []string{"--ckpt", "${checkpoint.dir}"}
	reply, err := c.client(rpc.Options{}).Submit(soon(t), r)
	if err != nil {
		t.Fatal(err)
	}
	want := "MUSTER_CHECKPOINT_DIR is on each node's own disk: an attempt on another node finds it empty"
	if len(reply.Notes) != 1 || reply.Notes[0] != want {
		t.Errorf("notes: %q", reply.Notes)
	}
	if reply, err := c.client(rpc.Options{}).Submit(soon(t), submission("plain")); err != nil || len(reply.Notes) != 0 {
		t.Errorf("notes: %q, %v", reply.Notes, err)
	}
}
