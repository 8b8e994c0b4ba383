package worker

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/musterhpc/muster"
)

func TestAWorkerCountsWhatItRuns(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.metrics = NewMetrics()
	n.agent()
	registry := prometheus.NewRegistry()
	registry.MustRegister(n.metrics.Collectors()...)
	c := n.run(s, id(1))
	until := func(what, want string) {
		t.Helper()
		name, _, _ := strings.Cut(strings.TrimPrefix(want, "# TYPE "), " ")
		late, tick := time.After(patient), time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for testutil.GatherAndCompare(registry, strings.NewReader(want), name) != nil {
			select {
			case <-tick.C:
			case <-late:
				t.Fatalf("waited for: %s", what)
			}
		}
	}
	if !n.metrics.Connected() {
		t.Error("a worker whose report a server has acknowledged is connected")
	}
	n.machine.exit(id(1), 3)
	report, _ := c.awaitReport(id(1), muster.AllocEnded)
	until("its task is one that has ended", `# TYPE muster_worker_tasks gauge
# HELP muster_worker_tasks Tasks that this worker knows; ended ones are those whose end the servers do not know yet.
muster_worker_tasks{phase="ended"} 1
muster_worker_tasks{phase="pending"} 0
muster_worker_tasks{phase="preparing"} 0
muster_worker_tasks{phase="ready"} 0
muster_worker_tasks{phase="running"} 0
muster_worker_tasks{phase="stopping"} 0
`)
	c.ack(report.GetSeq())
	if v := testutil.ToFloat64(n.metrics.ended.WithLabelValues("exit")); v != 1 {
		t.Errorf("%g tasks ended with class exit", v)
	}
	if v := testutil.ToFloat64(n.metrics.supervisors); v != 1 {
		t.Errorf("%g supervisors", v)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "muster_worker_journal_sync_seconds" && f.GetMetric()[0].GetHistogram().GetSampleCount() == 0 {
			t.Error("no write to the journal was measured")
		}
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}
