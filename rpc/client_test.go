package rpc_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/wire"
)

func TestAClientGoesOnAtAnotherServerWhenItsOwnStops(t *testing.T) {
	c := startCluster(t, 3)
	client := c.client(rpc.Options{}, 2, 1, 0)
	for i := range 3 {
		if _, err := client.Submit(soon(t), submission("job")); err != nil {
			t.Fatal(err)
		}
		if i < 2 {
			c.members[2-i].rpc.Stop()
		}
	}
	if n := len(c.members[0].jobs()); n != 3 {
		t.Errorf("3 submissions made %d jobs", n)
	}
}

func TestWithoutAServerAClientNamesThemAll(t *testing.T) {
	a, b := closedPort(t), closedPort(t)
	var mu sync.Mutex
	var said []string
	client, err := rpc.Dial([]string{a, b}, rpc.Options{Patience: 2500 * time.Millisecond,
		Notify: func(s string) { mu.Lock(); said = append(said, s); mu.Unlock() }})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = client.ListJobs(soon(t), &wire.ListJobsRequest{})
	if muster.KindOf(err) != muster.KindUnavailable || !strings.HasPrefix(err.Error(), "cannot reach any of "+a+", "+b+": ") ||
		!strings.HasSuffix(err.Error(), ". Is the cluster running?") {
		t.Errorf("got %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(said) != 1 || !strings.Contains(said[0], "trying for 2.5s in all") {
		t.Errorf("the user was told %q", said)
	}
}

// closedPort is an address where nobody listens.
func closedPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestAPatientClientTriesOnUntilItsContextEnds(t *testing.T) {
	client, err := rpc.Dial([]string{"127.0.0.1:1"}, rpc.Options{Patience: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.ListJobs(t.Context(), &wire.ListJobsRequest{}); muster.KindOf(err) != muster.KindUnavailable {
		t.Errorf("without patience: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := client.Patiently().ListJobs(ctx, &wire.ListJobsRequest{}); err == nil || ctx.Err() == nil {
		t.Errorf("with patience it gave up by itself: %v", err)
	}
}

func TestAddressesAreCompletedOrRefused(t *testing.T) {
	for _, address := range []string{"", "unix://relative", "a/b", "host:", "1:2:3", ":4691"} {
		if _, err := rpc.Dial([]string{address}, rpc.Options{}); muster.KindOf(err) != muster.KindUsage {
			t.Errorf("%q: %v", address, err)
		}
	}
	for _, address := range []string{"gpu-01", "gpu-01:99", "10.0.0.1", "::1", "[::1]:4691", "unix:///run/muster.sock"} {
		if _, err := rpc.Dial([]string{address}, rpc.Options{}); err != nil {
			t.Errorf("%q: %v", address, err)
		}
	}
	if _, err := rpc.Dial(nil, rpc.Options{}); muster.KindOf(err) != muster.KindUsage {
		t.Errorf("no address: %v", err)
	}
}

func TestACallGivesUpWithItsContext(t *testing.T) {
	c := startCluster(t, 1)
	c.elect(-1)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	client := c.client(rpc.Options{Patience: -1})
	go func() {
		_, err := client.Submit(ctx, submission("never"))
		failed <- err
	}()
	cancel()
	if err := <-failed; err != context.Canceled {
		t.Errorf("got %v", err)
	}
}

func TestAWatchShowsEachStateOnceOverAChangeOfServer(t *testing.T) {
	c := startCluster(t, 3)
	h := startLogHost(t)
	job, allocs := c.runJob(h, 1)
	var mu sync.Mutex
	var notes []string
	client := c.client(rpc.Options{Notify: func(s string) { mu.Lock(); notes = append(notes, s); mu.Unlock() }}, 2, 1)
	seen := make(chan string, 10)
	ended := make(chan error, 1)
	ctx := soon(t)
	go func() {
		ended <- client.WatchJobs(ctx, &wire.WatchJobsRequest{Jobs: []*wire.JobRef{{Name: "talker"}}}, func(j *wire.JobInfo) error {
			seen <- j.State
			return nil
		})
	}()
	if first := <-seen; first != "running" {
		t.Errorf("the first state is %s", first)
	}
	c.members[2].rpc.Stop()
	if _, err := c.client(rpc.Options{}, 1).Cancel(ctx, &wire.CancelRequest{Jobs: []*wire.JobRef{{Id: job}}}); err != nil {
		t.Fatal(err)
	}
	if next := <-seen; next != "stopping" {
		t.Errorf("then it is %s", next)
	}
	c.report(1, muster.AllocReport{ID: allocs[0], Phase: muster.AllocEnded, Running: 1, Ended: 2, Class: muster.ClassCancelled})
	if next := <-seen; next != "cancelled" {
		t.Errorf("in the end it is %s", next)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(notes) != 1 || notes[0] != "reconnected" {
		t.Errorf("the user was told %q", notes)
	}
}

func TestAWatchOfAnUnknownJobSaysSo(t *testing.T) {
	c := startCluster(t, 1)
	err := c.client(rpc.Options{}).WatchJobs(soon(t), &wire.WatchJobsRequest{Jobs: []*wire.JobRef{{Id: 77}}}, func(*wire.JobInfo) error { return nil })
	if muster.KindOf(err) != muster.KindNotFound {
		t.Errorf("got %v", err)
	}
}

func TestWhatAClientIsShownNeverGoesBack(t *testing.T) {
	c := startCluster(t, 2)
	c.members[1].freeze(true)
	if _, err := c.client(rpc.Options{}, 0).Submit(soon(t), submission("new")); err != nil {
		t.Fatal(err)
	}
	client := c.client(rpc.Options{}, 0, 1)
	for i := range 2 {
		reply, err := client.ListJobs(soon(t), &wire.ListJobsRequest{Stale: true})
		if err != nil || len(reply.Jobs) != 1 {
			t.Fatalf("read %d: %v, %v", i+1, reply, err)
		}
		if i == 0 {
			c.members[0].rpc.Stop() // the other one is frozen in the past, for now
			time.AfterFunc(300*time.Millisecond, func() { c.members[1].freeze(false) })
		}
	}
}

// A server that holds a request for nothing (here: its state stands still) doesn't cost a client all of its patience.
func TestAClientLeavesAServerThatHoldsItsRequest(t *testing.T) {
	c := startCluster(t, 3)
	c.members[1].mu.Lock()
	c.members[1].frozen = true
	c.members[1].mu.Unlock()
	client := c.client(rpc.Options{Patience: 4 * time.Second}, 1, 2)
	if _, err := client.Submit(soon(t), submission("job")); err != nil {
		t.Fatal(err)
	}
	if n := len(c.members[2].jobs()); n != 1 {
		t.Errorf("tried at two servers, one submission made %d jobs", n)
	}
}

func TestAClientAtAPortOfSomethingElseSaysWhichPortItIs(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	address := web.Listener.Addr().String()
	client, err := rpc.Dial([]string{address}, rpc.Options{Patience: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = client.ListJobs(soon(t), &wire.ListJobsRequest{})
	want := "cannot reach " + address + ": what answers there is not muster's RPC. Its port is 4691 unless configured otherwise (4690 is HTTP)."
	if muster.KindOf(err) != muster.KindUnavailable || err.Error() != want {
		t.Errorf("got %v", err)
	}
}
