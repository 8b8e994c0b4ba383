package cluster

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	gometrics "github.com/hashicorp/go-metrics"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

func gather(t *testing.T, collectors ...prometheus.Collector) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectors...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	out := map[string]*dto.MetricFamily{}
	for _, f := range families {
		out[f.GetName()] = f
	}
	return out
}

// raft-boltdb's measurements vanish in silence when this program is built without its tag.
func TestWhatTheLibrariesMeasureArrives(t *testing.T) {
	l, err := Libraries()
	if err != nil {
		t.Fatal(err)
	}
	c := startCluster(t, 3, nil)
	c.everywhere(c.submit("one"))
	families := gather(t, l)
	for _, name := range []string{"raft_boltdb_store_logs_seconds", "raft_boltdb_logs_per_batch", "raft_boltdb_log_batch_size_bytes",
		"raft_commit_seconds", "raft_apply_total", "raft_replication_append_entries_rpc_seconds", "memberlist_msg_alive_total"} {
		if families[name] == nil {
			t.Errorf("%s has not come; there are %d families", name, len(families))
		}
	}
	if f := families["raft_boltdb_store_logs_seconds"]; f != nil {
		h := f.GetMetric()[0].GetHistogram()
		if mean := h.GetSampleSum() / float64(h.GetSampleCount()); mean <= 0 || mean > 1 {
			t.Errorf("storing logs took %g s in the mean: it is told in another unit", mean)
		}
	}
}

func TestALibraryMayNotMakeSeriesWithoutEnd(t *testing.T) {
	l := &libraries{series: map[string]func(float64){}, families: map[string]*family{}}
	for i := range 10 * maxSeries {
		l.IncrCounterWithLabels([]string{kindCounter, "raft", "peerThing"}, 1, []gometrics.Label{{Name: "peer_id", Value: fmt.Sprint(i)}})
	}
	l.IncrCounter([]string{kindCounter, "raft", "peerThing"}, 1) // other labels than before
	if n := testutil.CollectAndCount(l, "raft_peer_thing_total"); n != maxSeries {
		t.Errorf("%d series, want %d", n, maxSeries)
	}
}

func TestNamesOfTheLibrariesSayTheirUnit(t *testing.T) {
	for key, want := range map[string]string{
		"timer raft.boltdb.storeLogs":          "raft_boltdb_store_logs_seconds",
		"timer raft.commitTime":                "raft_commit_seconds",
		"sample raft.leader.lastContact":       "raft_leader_last_contact_seconds",
		"sample raft.boltdb.txstats.spillTime": "raft_boltdb_txstats_spill_seconds",
		"counter memberlist.udp.sent":          "memberlist_udp_sent_bytes_total",
		"gauge raft.peers":                     "raft_peers",
		"counter raft.verify_leader":           "raft_verify_leader_total",
	} {
		kind, path, _ := strings.Cut(key, " ")
		if got, _ := promName(kind, strings.Split(path, ".")); got != want {
			t.Errorf("%s is called %s, want %s", key, got, want)
		}
	}
}

func TestTheLeaderAloneTellsWhatTheClusterHas(t *testing.T) {
	c := startCluster(t, 3, nil)
	c.register()
	c.submit("first")
	c.everywhere(c.submit("second"))
	leader := c.leader()
	value := func(s *testServer, want string) {
		t.Helper()
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.SplitN(want, "\n", 2)[0], "# TYPE "), " ")
		c.eventually(want, func() bool {
			registry := prometheus.NewRegistry()
			registry.MustRegister(s.Collectors()...)
			return testutil.GatherAndCompare(registry, strings.NewReader(want), name) == nil
		})
	}
	value(leader, `# TYPE muster_queue_jobs gauge
# HELP muster_queue_jobs Jobs of a queue: pending, or holding resources. Told by the leader alone.
muster_queue_jobs{queue="default",state="pending"} 1
muster_queue_jobs{queue="default",state="running"} 1
`)
	value(leader, `# TYPE muster_gpus gauge
# HELP muster_gpus GPUs by state: busy, free, or out (of service, by its health or its node's state). Told by the leader alone.
muster_gpus{health="healthy",model="NVIDIA H100 80GB HBM3",state="busy"} 1
`)
	value(leader, `# TYPE muster_leases gauge
# HELP muster_leases Allocations that have not ended; each holds a lease. Told by the leader alone.
muster_leases 1
`)
	value(leader, `# TYPE muster_jobs_submitted_total counter
# HELP muster_jobs_submitted_total Jobs submitted while this server led.
muster_jobs_submitted_total 2
`)
	families := gather(t, leader.Collectors()...)
	if v := families["muster_scheduler_gangs_total"].GetMetric(); len(v) != 2 || v[0].GetCounter().GetValue() != 1 {
		t.Errorf("placed: %v", v)
	}
	if age := families["muster_quorum_contact_age_seconds"].GetMetric()[0].GetGauge().GetValue(); age < 0 || age > 10 {
		t.Errorf("quorum contact is %g s old", age)
	}
	for _, follower := range c.followers() {
		families := gather(t, follower.Collectors()...)
		if families["muster_queue_jobs"] != nil || families["muster_server_leader"].GetMetric()[0].GetGauge().GetValue() != 0 {
			t.Error("a follower tells what the leader tells: a sum over servers would be wrong")
		}
		if families["muster_server_applied_index"].GetMetric()[0].GetGauge().GetValue() < 3 {
			t.Error("a follower's position is its own to tell")
		}
	}
}

// logBook is a log that can be read while it is written.
type logBook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBook) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.text.String(), text)
}

func TestOneLineForEachDecisionInTheWholeCluster(t *testing.T) {
	var book logBook
	c := startCluster(t, 3, func(_ int, config *Config) {
		config.Logger = hclog.New(&hclog.LoggerOptions{Output: &book, Level: hclog.Info, JSONFormat: true})
	})
	c.register()
	c.submit("first")
	for _, line := range []string{`"@message":"leading"`, `"@message":"node.registered"`, `"@message":"job.submitted"`, `"@message":"plan committed"`} {
		c.eventually(line, func() bool { return book.count(line) > 0 })
	}
	if n := book.count(`"@message":"job.submitted"`); n != 1 {
		t.Errorf("%d lines for one submission", n)
	}
	if book.count(`"name":"first"`) == 0 {
		t.Error("the line does not name the job")
	}
}

func TestManyLinesOfAKindBecomeANumber(t *testing.T) {
	var book logBook
	l := lines{log: hclog.New(&hclog.LoggerOptions{Output: &book, Level: hclog.Info}), every: time.Second}
	now := time.Now()
	for range 5000 {
		l.say(now, hclog.Info, "job.submitted", nil)
	}
	l.say(now, hclog.Warn, "node.lost", nil)
	l.tick(now.Add(2 * time.Second))
	if n := book.count("job.submitted"); n != linesAtOnce+1 || book.count("count=4980") != 1 || book.count("node.lost") != 1 {
		t.Errorf("%d lines:\n%s", n, book.text.String())
	}
	l.say(now.Add(2*time.Second), hclog.Info, "job.submitted", nil)
	if n := book.count("job.submitted"); n != linesAtOnce+2 {
		t.Error("the next period says nothing")
	}
}
