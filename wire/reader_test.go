package wire

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

func TestANameIsTheCallersOwnNewestLiveJob(t *testing.T) {
	c := newCluster(t)
	first := c.submit("ann", "train", 1, 1)
	second := c.submit("ann", "train", 1, 1)
	c.submit("bob", "eval", 1, 1)
	for _, check := range []struct {
		ref  *JobRef
		want muster.JobID
	}{{&JobRef{Name: "train"}, second}, {&JobRef{Id: 1}, first}, {&JobRef{Id: 3}, 3}} {
		if id, err := c.read().ResolveJob(check.ref, "ann"); err != nil || id != check.want {
			t.Errorf("%v is %d, %v; want %d", check.ref, id, err, check.want)
		}
	}
	c.do(&state.Cancel{Jobs: []muster.JobID{second}, Mode: muster.StopSave})
	if id, _ := c.read().ResolveJob(&JobRef{Name: "train"}, "ann"); id != first {
		t.Errorf("train is %d, and %d lives", id, first)
	}
	for _, check := range []struct {
		ref  *JobRef
		kind muster.Kind
		want string
	}{
		{&JobRef{Name: "eval"}, muster.KindNotFound, "no job eval of yours; bob has one: 3"},
		{&JobRef{Name: "none"}, muster.KindNotFound, "no job none of yours"},
		{&JobRef{Id: 99}, muster.KindNotFound, "there is no job 99"},
		{&JobRef{}, muster.KindUsage, "no job is named"},
		{nil, muster.KindUsage, "no job is named"},
	} {
		_, err := c.read().ResolveJob(check.ref, "ann")
		if muster.KindOf(err) != check.kind || !strings.Contains(err.Error(), check.want) {
			t.Errorf("%v: %v, want %q", check.ref, err, check.want)
		}
	}
}

func TestAJobIsShownAsItGoes(t *testing.T) {
	c := newCluster(t)
	id := c.submit("ann", "train", 2, 4, muster.Label{Key: "team", Value: "nlp"})
	info := c.job(id)
	if info.State != "pending" || info.RankCount != 2 || info.Gpus != 8 || len(info.Ranks) != 0 || info.HasExitCode ||
		info.Labels[0].Value != "nlp" || info.Spec.GetName() != "train" || info.StartedAt != 0 {
		t.Errorf("pending: %v", info)
	}
	c.place(id, 1, 2)
	c.do(&state.ReportAllocs{Node: 1, Allocs: []muster.AllocReport{{ID: muster.AllocID{Epoch: 1, Counter: 1}, Phase: muster.AllocReady}}})
	info = c.job(id)
	if info.State != "preparing" || len(info.Ranks) != 2 || info.Ready != 1 {
		t.Errorf("preparing: %v", info)
	}
	want := &RankInfo{Group: "train", Rank: 1, Attempt: 1, State: "pending", Node: "w2", Alloc: &AllocID{Epoch: 1, Counter: 2},
		Gpus: []string{"GPU-w2-0", "GPU-w2-1", "GPU-w2-2", "GPU-w2-3"}, GpuIndices: []int64{0, 1, 2, 3}, MilliCores: 32000,
		Memory: info.Ranks[1].Memory}
	if !proto.Equal(want, info.Ranks[1]) {
		t.Errorf("rank 1: %v, want %v", info.Ranks[1], want)
	}
	c.report(id, muster.AllocReady, 0, 0)
	c.report(id, muster.AllocRunning, 0, 0)
	if info = c.job(id); info.State != "running" || info.StartedAt == 0 || info.Ranks[0].StartedAt == 0 || info.Ready != 2 {
		t.Errorf("running: %v", info)
	}
	c.finish(id, 3)
	info = c.job(id)
	if info.State != "failed" || info.Class != "exit" || !info.HasExitCode || info.ExitCode != 3 || info.FinishedAt == 0 ||
		!info.Ranks[0].HasExitCode || info.Ranks[0].ExitCode != 3 || len(info.Attempts) != 1 || len(info.EarlierRanks) != 0 {
		t.Errorf("failed: %v", info)
	}
	if plain, _ := c.read().Job(id, false, false); len(plain.Attempts) != 0 || plain.Spec != nil || len(plain.Ranks) != 2 {
		t.Errorf("without details: %v", plain)
	}
	if _, ok := c.read().Job(77, false, false); ok {
		t.Error("a job that is not there")
	}
}

func TestAJobThatEndsOrStartsAgainSaysWhy(t *testing.T) {
	c := newCluster(t)
	id := c.submit("ann", "train", 1, 1)
	if info := c.job(id); info.Class != "" || info.Reason != "" {
		t.Errorf("never placed: %v", info)
	}
	c.run(id, 1)
	if info := c.job(id); info.Class != "" || info.Reason != "" {
		t.Errorf("running: %v", info)
	}
	c.do(&state.DrainNodes{Header: state.Header{User: "root"}, Nodes: []string{"w1"}, Reason: "fan", HasDeadline: true})
	c.do(&state.DrainDue{Term: clusterTerm, Node: 1})
	if info := c.job(id); info.State != "stopping" || info.Class != "drain" || info.Reason != "w1 is drained: fan" {
		t.Errorf("asked to stop: %v", info)
	}
	c.report(id, muster.AllocEnded, muster.ClassDrain, 0)
	if info := c.job(id); info.State != "pending" || info.Class != "drain" || info.Reason != "w1 is drained: fan" || info.HasExitCode {
		t.Errorf("pending again: %v", info)
	}
	c.run(id, 2)
	if info := c.job(id); info.State != "running" || info.Class != "" || info.Reason != "" {
		t.Errorf("running again: %v", info)
	}
}

func TestRanksOfAnAttemptThatTheClusterEndedAreEarlierOnes(t *testing.T) {
	c := newCluster(t)
	id := c.submit("ann", "train", 1, 1)
	c.run(id, 1)
	c.do(&state.FenceNode{Node: "w1"})
	info := c.job(id)
	if info.State != "pending" || len(info.Ranks) != 0 || len(info.EarlierRanks) != 1 || info.EarlierRanks[0].Class != "node" ||
		info.EarlierRanks[0].HasExitCode {
		t.Errorf("%v", info)
	}
}

func TestJobsAreFilteredAndPaged(t *testing.T) {
	c := newCluster(t)
	var ids []uint64
	for i := range 5 {
		ids = append(ids, uint64(c.submit("ann", fmt.Sprintf("job-%d", i), 1, 1, muster.Label{Key: "n", Value: fmt.Sprint(i)})))
	}
	bobs := uint64(c.submit("bob", "eval", 1, 1))
	c.do(&state.Cancel{Jobs: []muster.JobID{1}, Mode: muster.StopSave})
	long := c.now
	c.now += muster.Time(2 * time.Hour / time.Millisecond)
	c.run(2, 1)
	c.finish(2, 0)
	list := func(q *ListJobsRequest) []uint64 {
		t.Helper()
		reply, err := c.read().Jobs(q, "ann")
		if err != nil {
			t.Fatal(err)
		}
		var out []uint64
		for _, j := range reply.Jobs {
			out = append(out, j.Id)
		}
		return out
	}
	hour := int64(c.now) - int64(time.Hour/time.Millisecond)
	for _, check := range []struct {
		q    *ListJobsRequest
		want []uint64
	}{
		{&ListJobsRequest{}, []uint64{5, 4, 3}},
		{&ListJobsRequest{EndedSince: hour}, []uint64{5, 4, 3, 2}},
		{&ListJobsRequest{Ended: true}, []uint64{5, 4, 3, 2, 1}},
		{&ListJobsRequest{User: "*"}, []uint64{bobs, 5, 4, 3}},
		{&ListJobsRequest{User: "bob"}, []uint64{bobs}},
		{&ListJobsRequest{States: []string{"succeeded", "cancelled"}}, []uint64{2, 1}},
		{&ListJobsRequest{States: []string{"running"}}, nil},
		{&ListJobsRequest{Queue: "other"}, nil},
		{&ListJobsRequest{Labels: []*Label{{Key: "n", Value: "3"}}}, []uint64{4}},
		{&ListJobsRequest{Labels: []*Label{{Key: "n", Value: "9"}}}, nil},
		{&ListJobsRequest{Since: int64(long)}, nil},
		{&ListJobsRequest{Until: int64(c.submitted(4))}, []uint64{3}},
		{&ListJobsRequest{Since: int64(c.submitted(4))}, []uint64{5, 4}},
	} {
		if diff := cmp.Diff(check.want, list(check.q)); diff != "" {
			t.Errorf("%v: %s", check.q, diff)
		}
	}
	var paged []uint64
	token := ""
	for pages := 1; ; pages++ {
		reply, err := c.read().Jobs(&ListJobsRequest{Ended: true, Limit: 2, PageToken: token}, "ann")
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range reply.Jobs {
			paged = append(paged, j.Id)
		}
		if token = reply.NextPageToken; token == "" {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
	}
	slices.Reverse(paged)
	if diff := cmp.Diff(ids, paged); diff != "" {
		t.Error(diff)
	}
	for _, q := range []*ListJobsRequest{{States: []string{"done"}}, {PageToken: "x"}, {Limit: -1}} {
		if _, err := c.read().Jobs(q, "ann"); muster.KindOf(err) != muster.KindUsage {
			t.Errorf("%v: %v", q, err)
		}
	}
	if reply, err := c.read().Jobs(&ListJobsRequest{PageToken: "1"}, "ann"); err != nil || len(reply.Jobs) != 0 {
		t.Errorf("after the oldest job: %v, %v", reply, err)
	}
}

func (c *cluster) submitted(id muster.JobID) muster.Time {
	j, _ := c.state.Snapshot().Job(id)
	return j.Submitted
}

func TestNodesShowWhatRunsThereAndHowTheyAre(t *testing.T) {
	c := newCluster(t)
	id := c.submit("ann", "train", 1, 4)
	c.run(id, 2)
	c.do(&state.DrainNodes{Header: state.Header{User: "root"}, Nodes: []string{"w2"}, Reason: "fan"})
	reply, err := c.read().Nodes(nil, map[uint32]string{1: "silent for 4 s"})
	if err != nil || len(reply.Nodes) != 2 {
		t.Fatal(reply, err)
	}
	w1, w2 := reply.Nodes[0], reply.Nodes[1]
	if w1.State != "suspect" || w1.Reason != "silent for 4 s" || len(w1.Jobs) != 0 {
		t.Errorf("w1: %v", w1)
	}
	want := &GPUJob{Job: uint64(id), Name: "train", User: "ann", Slots: 0b1111, State: "running"}
	if w2.State != "draining" || w2.Reason != "fan" || len(w2.Jobs) != 1 || !proto.Equal(w2.Jobs[0], want) {
		t.Errorf("w2: %v", w2)
	}
	c.do(&state.FenceNode{Node: "w1"})
	reply, err = c.read().Nodes([]string{"w1", "w1"}, map[uint32]string{1: "silent"})
	if err != nil || len(reply.Nodes) != 1 || reply.Nodes[0].State != "lost" {
		t.Errorf("w1 after the fence: %v, %v", reply, err)
	}
	if _, err := c.read().Nodes([]string{"w9"}, nil); muster.KindOf(err) != muster.KindNotFound {
		t.Errorf("an unknown node: %v", err)
	}
}

func TestAWorkerIsSentEverythingOnceAndThenWhatChanges(t *testing.T) {
	c := newCluster(t)
	sent := map[muster.AllocID]*Desired{}
	view := c.read().NodeView(1, sent)
	if !view.Full || len(view.Desired) != 0 || view.NodeState != "ready" || view.Version.Index != uint64(c.index) {
		t.Errorf("an idle node: %v", view)
	}
	id := c.submit("ann", "train", 3, 2)
	c.place(id, 1, 2, 1)
	view = c.read().NodeView(1, sent)
	if len(view.Desired) != 2 || len(view.Gone) != 0 || len(sent) != 2 {
		t.Fatalf("placed: %v", view)
	}
	d := view.Desired[0]
	if d.User != "ann" || d.Queue != "default" || d.JobName != "train" || d.Spec.GetName() != "train" || len(d.SpecId) != 16 ||
		d.Submitted == 0 || d.Alloc.Port == 0 {
		t.Errorf("desired: %v", d)
	}
	var peers []string
	for i, p := range d.Peers {
		peers = append(peers, fmt.Sprintf("%d@%s %s %d %d", p.Rank, p.Node, p.Ip, p.Gpus, p.MilliCores))
		if (p.Port != 0) != (i == 0) || i == 0 && p.Port != d.Alloc.Port {
			t.Errorf("peer %d has port %d", i, p.Port)
		}
	}
	if diff := cmp.Diff([]string{"0@w1 10.0.0.1 2 16000", "1@w2 10.0.0.2 2 16000", "2@w1 10.0.0.1 2 16000"}, peers); diff != "" {
		t.Error(diff)
	}
	if view = c.read().NodeView(1, sent); view.Full || len(view.Desired)+len(view.Gone) != 0 {
		t.Errorf("nothing changed: %v", view)
	}
	c.report(id, muster.AllocReady, 0, 0) // the last one opens the barrier
	view = c.read().NodeView(1, sent)
	if view.Full || len(view.Desired) != 2 || !view.Desired[0].Alloc.Go || view.Desired[0].Spec == nil || len(view.Desired[0].Peers) != 3 {
		t.Errorf("the barrier opened: %v", view)
	}
	c.report(id, muster.AllocRunning, 0, 0)
	c.finish(id, 0)
	view = c.read().NodeView(1, sent)
	if len(view.Desired) != 0 || len(view.Gone) != 2 || view.Gone[0].Counter > view.Gone[1].Counter || len(sent) != 0 {
		t.Errorf("ended: %v", view)
	}
	if view = c.read().NodeView(1, sent); !view.Full || len(view.Gone) != 0 {
		t.Errorf("forgotten: %v", view)
	}
}

func TestLogsAreFoundWhereTheRanksAre(t *testing.T) {
	c := newCluster(t)
	id := c.submit("ann", "train", 2, 1)
	if targets, err := c.read().LogTargets(id, &LogsRequest{}); err != nil || len(targets) != 0 {
		t.Errorf("a pending job: %v, %v", targets, err)
	}
	c.run(id, 1, 2)
	c.do(&state.FenceNode{Node: "w1"}) // attempt 1 ends; rank 1 is stopped as collateral
	c.report(id, muster.AllocEnded, muster.ClassNone, 0)
	c.run(id, 2, 2)
	ranks := func(q *LogsRequest) string {
		t.Helper()
		targets, err := c.read().LogTargets(id, q)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, a := range targets {
			out = append(out, fmt.Sprintf("%d@%d", a.Rank, a.Attempt))
		}
		return strings.Join(out, " ")
	}
	for want, q := range map[string]*LogsRequest{
		"0@1 1@1 0@2 1@2": {},
		"0@2 1@2":         {Attempt: 2},
		"1@1 1@2":         {Ranks: []int64{1}},
		"0@1":             {Failed: true},
	} {
		if got := ranks(q); got != want {
			t.Errorf("%v: %s, want %s", q, got, want)
		}
	}
	for _, q := range []*LogsRequest{{Attempt: 3}, {Ranks: []int64{2}}, {Ranks: []int64{-1}}} {
		if _, err := c.read().LogTargets(id, q); muster.KindOf(err) != muster.KindNotFound {
			t.Errorf("%v: %v", q, err)
		}
	}
	if _, err := c.read().LogTargets(99, nil); muster.KindOf(err) != muster.KindNotFound {
		t.Error(err)
	}
	first, _ := c.read().LogTargets(id, &LogsRequest{})
	if _, name, err := c.read().AllocAt(first[0].ID); muster.KindOf(err) != muster.KindUnavailable || name != "w1" {
		t.Errorf("on the lost node %s: %v", name, err)
	}
	if address, name, err := c.read().AllocAt(first[1].ID); err != nil || name != "w2" || address != "w2:4691" {
		t.Errorf("%s, %s, %v", address, name, err)
	}
	if _, _, err := c.read().AllocAt(muster.AllocID{Epoch: 9}); muster.KindOf(err) != muster.KindNotFound {
		t.Error(err)
	}
}
