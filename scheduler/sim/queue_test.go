package sim

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// replayText runs jobs written as CSV on n nodes of 8 GPUs and gives the segments.
func replayText(t *testing.T, n int, jobs string, edit ...func(*Queue)) (string, *QueueResult) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.csv")
	if err := os.WriteFile(path, []byte("job_id,user,submit,duration,gpus,limit\n"+jobs), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := ReadJobs(path)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &Queue{Nodes: PlainNodes(n, 8), Jobs: list, Overhead: 30 * time.Second, Seed: 1}
	for _, e := range edit {
		e(cfg)
	}
	res, err := RunQueue(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := res.WriteSegments(&out); err != nil {
		t.Fatal(err)
	}
	return out.String(), res
}

func TestAJobStartsWhenItsGPUsAreFree(t *testing.T) {
	got, res := replayText(t, 1, "a,ann,0,100,8,200\nb,bob,10,50,8,60\n")
	want := "job_id,start,end,alloc\na,0.000,100.000,n0:0-1-2-3-4-5-6-7\nb,100.000,150.000,n0:0-1-2-3-4-5-6-7\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if res.Makespan != 150*time.Second || res.All.MeanWait != 45*time.Second || res.Utilisation != 1 {
		t.Errorf("makespan %v, mean wait %v, use %v", res.Makespan, res.All.MeanWait, res.Utilisation)
	}
}

func TestAWideGangTakesWholeNodesAndOneMoreForTheRest(t *testing.T) {
	got, _ := replayText(t, 3, "a,ann,0,5,18,0\n")
	if !strings.Contains(got, "a,0.000,5.000,") || strings.Count(got, ":") != 3 || !strings.Contains(got, ":0-1\n") {
		t.Errorf("18 GPUs on nodes of 8: %s", got)
	}
}

func TestEqualSeedsGiveEqualBytes(t *testing.T) {
	jobs := "a,ann,0,100,3,200\nb,bob,0,50,8,60\nc,ann,1,20,5,60\nd,bob,2,30,16,60\n"
	one, _ := replayText(t, 2, jobs)
	two, _ := replayText(t, 2, jobs)
	if one != two {
		t.Errorf("two runs differ:\n%s\n%s", one, two)
	}
}

func TestAJobThatNeverFitsIsNamed(t *testing.T) {
	cfg := &Queue{Nodes: PlainNodes(1, 8), Jobs: []Job{{ID: "x", Duration: time.Second, Need: Need{GPUs: 17, Milli: 1000}}}}
	if _, err := RunQueue(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), "all nodes together could hold") {
		t.Errorf("an impossible job: %v", err)
	}
}

func TestAMistakeInATraceIsShownWithItsLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.csv")
	if err := os.WriteFile(path, []byte("job_id,user,submit,duration,gpus\na,,0,1,1\na,,0,x,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadJobs(path); err == nil || !strings.Contains(err.Error(), `jobs.csv:3: duration: "x" is not a number`) {
		t.Errorf("error: %v", err)
	}
}
