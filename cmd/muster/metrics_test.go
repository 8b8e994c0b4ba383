package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhpc/muster/cluster"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/worker"
)

var writeMetrics = flag.Bool("write-metrics", false, "write docs/metrics.md anew")

// documented is one metric, as its page says it.
type documented struct{ name, kind, labels, help string }

var description = regexp.MustCompile(`^Desc\{fqName: "(\w+)", help: (".*"), unit: "\w*", constLabels: \{(.*?)\}, variableLabels: \{(.*)\}\}$`)

// describe reads off collectors what they will say.
func describe(t *testing.T, collectors ...prometheus.Collector) (all []documented) {
	t.Helper()
	for _, c := range collectors {
		kind := "gauge"
		switch c.(type) {
		case prometheus.Gauge, *prometheus.GaugeVec:
		case prometheus.Counter, *prometheus.CounterVec:
			kind = "counter"
		case prometheus.Histogram, *prometheus.HistogramVec:
			kind = "histogram"
		}
		descs := make(chan *prometheus.Desc, 64)
		c.Describe(descs)
		close(descs)
		for d := range descs {
			m := description.FindStringSubmatch(d.String())
			if m == nil {
				t.Fatalf("the library describes a metric in another way now: %s", d)
			}
			help, err := strconv.Unquote(m[2])
			if err != nil {
				t.Fatal(err)
			}
			labels := m[4]
			if name, _, is := strings.Cut(m[3], "="); is {
				labels = name
			}
			all = append(all, documented{m[1], kind, strings.ReplaceAll(labels, ",", ", "), help})
		}
	}
	slices.SortFunc(all, func(a, b documented) int { return strings.Compare(a.name, b.name) })
	return all
}

// metricsPage is docs/metrics.md.
func metricsPage(t *testing.T) string {
	t.Helper()
	service := rpc.NewServer(rpc.Config{})
	t.Cleanup(service.Stop)
	var page strings.Builder
	page.WriteString(metricsPreface)
	section := func(title, text string, list []documented) {
		fmt.Fprintf(&page, "\n## %s\n\n%s\n\n| metric | type | labels | |\n|---|---|---|---|\n", title, text)
		for _, m := range list {
			fmt.Fprintf(&page, "| `%s` | %s | %s | %s |\n", m.name, m.kind, m.labels, m.help)
		}
	}
	section("Servers: the cluster", "What is of the cluster is told by the leader alone, so that a sum over all servers is right, whoever leads.",
		describe(t, cluster.Described()...))
	section("Servers: answers", "Of calls and requests that this server answered.", describe(t, service.Collectors()...))
	section("Workers", "Of each machine's worker.", describe(t, worker.NewMetrics().Collectors()...))
	section("Every process", "Beside these, `go_…` and `process_…` as the Prometheus client library has them.", describe(t, buildInfo()))
	page.WriteString(metricsOfLibraries)
	return page.String()
}

const metricsPreface = `# Metrics

Each agent answers ` + "`GET /metrics`" + ` on its HTTP port (4690), server and worker alike, in Prometheus' text format. Times are in seconds,
sizes in bytes. This page is made from the program: ` + "`go test ./cmd/muster -run Metrics -write-metrics`" + `.

` + "```yaml" + `
scrape_configs:
  - job_name: muster
    static_configs:
      - targets: ["gpu-01:4690", "gpu-02:4690", "head-01:4690"]
` + "```" + `

Worth an alert:

| | |
|---|---|
| ` + "`sum(muster_server_leader) < 1`" + ` for 10 s | nobody leads: no job starts, nothing can be submitted |
| ` + "`max(muster_quorum_contact_age_seconds) > 5`" + ` | the leader hardly reaches a majority |
| ` + "`muster_server_clock_off == 1`" + ` | a server's clock is off: it does not stand for election |
| ` + "`sum(muster_nodes{state=\"lost\"}) > 0`" + ` | a machine is gone |
| ` + "`muster_worker_session == 0`" + ` for 1 m | a worker reaches no server: its leases run out |
| ` + "`rate(muster_worker_supervisor_starts_total[1h]) > 0`" + ` | a supervisor died, and its tasks with it |
| ` + "`sum(muster_gpus{state=\"free\"}) > 0 and sum(muster_queue_jobs{state=\"pending\"}) > 0`" + ` for 1 h | GPUs idle while jobs wait: ask ` + "`muster why`" + ` |
`

const metricsOfLibraries = `
## Raft, its log and gossip

What the libraries measure of themselves stands under ` + "`raft_…`, `raft_boltdb_…` and `memberlist_…`" + `, each when it first happened. Names are
theirs in snake_case, with the unit: ` + "`raft.boltdb.storeLogs`" + ` is the histogram ` + "`raft_boltdb_store_logs_seconds`" + `: how long a write of the log took, with
its sync. ` + "`raft_commit_seconds`" + ` is from proposal to commit, ` + "`raft_leader_last_contact_seconds`" + ` how long a follower was not heard of.
Times are histograms, so that they can be added up over servers.
`

func TestTheMetricsPageIsTheProgramsOwn(t *testing.T) {
	const path = "../../docs/metrics.md"
	want := metricsPage(t)
	if *writeMetrics {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	is, err := os.ReadFile(path)
	if err != nil || string(is) != want {
		t.Errorf("docs/metrics.md is not what the program measures (%v): go test ./cmd/muster -run Metrics -write-metrics", err)
	}
}
