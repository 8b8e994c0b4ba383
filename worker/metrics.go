package worker

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/worker/step"
)

// Metrics is what a worker measures of itself. One is given to Run, and its collectors to a registry.
type Metrics struct {
	tasks       *prometheus.Desc
	session     prometheus.Gauge
	sessions    prometheus.Counter
	ended       *prometheus.CounterVec
	supervisors prometheus.Counter
	journal     prometheus.Histogram
	starts      prometheus.Histogram
	overdue     prometheus.Counter

	phases   [muster.AllocEnded + 1]atomic.Int64
	welcomed atomic.Bool
}

// NewMetrics makes metrics that nothing has been counted in.
func NewMetrics() *Metrics {
	m := &Metrics{
		tasks: prometheus.NewDesc("muster_worker_tasks", "Tasks that this worker knows; ended ones are those whose end the servers do not know yet.",
			[]string{"phase"}, nil),
		session: prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_worker_session",
			Help: "1 while this worker talks to a server that has welcomed it, else 0."}),
		sessions: prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_worker_sessions_total",
			Help: "Sessions begun with a server; many mean that the network or the servers are not well."}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_worker_tasks_ended_total",
			Help: "Tasks that ended here, by class; ok is a success."}, []string{"class"}),
		supervisors: prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_worker_supervisor_starts_total",
			Help: "Times that a supervisor was found or started; more than one says that one died."}),
		journal: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "muster_worker_journal_sync_seconds",
			Help: "How long a write to the journal took until it was on the disk.", Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16)}),
		starts: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "muster_worker_start_seconds",
			Help: "How long starting a task took, from the order until its process runs.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14)}),
		overdue: prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_worker_overdue_kills_total",
			Help: "Tasks that the agent itself killed because their lease was over and their supervisor silent."}),
	}
	for _, class := range classWords {
		m.ended.WithLabelValues(class)
	}
	return m
}

// classWords are how tasks end.
var classWords = func() []string {
	words := []string{"ok"}
	for c := muster.ClassExit; c <= muster.ClassCollateral; c++ {
		words = append(words, c.String())
	}
	return words
}()

func classWord(c muster.Class) string {
	if c == muster.ClassNone {
		return "ok"
	}
	return c.String()
}

// Collectors are for a registry.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{phaseGauges{m}, m.session, m.sessions, m.ended, m.supervisors, m.journal, m.starts, m.overdue}
}

// phaseGauges tells how many tasks are in each phase, as the loop last counted them.
type phaseGauges struct{ m *Metrics }

func (g phaseGauges) Describe(out chan<- *prometheus.Desc) { out <- g.m.tasks }

func (g phaseGauges) Collect(out chan<- prometheus.Metric) {
	for p := muster.AllocPlaced; p <= muster.AllocEnded; p++ {
		out <- prometheus.MustNewConstMetric(g.m.tasks, prometheus.GaugeValue, float64(g.m.phases[p].Load()), p.String())
	}
}

// count notes how many tasks are in each phase.
func (m *Metrics) count(machine *step.Machine) {
	var phases [muster.AllocEnded + 1]int64
	for t := range machine.All() {
		phases[min(t.Phase, muster.AllocEnded)]++
	}
	for p := range phases {
		m.phases[p].Store(phases[p])
	}
}

// Connected says whether a server has welcomed this worker.
func (m *Metrics) Connected() bool { return m.welcomed.Load() }

// talks notes whether one has.
func (m *Metrics) talks(yes bool) {
	if m.welcomed.Swap(yes) == yes {
		return
	}
	if yes {
		m.session.Set(1)
		m.sessions.Inc()
	} else {
		m.session.Set(0)
	}
}

// since observes how long something took.
func since(h prometheus.Histogram, began time.Time) { h.Observe(time.Since(began).Seconds()) }
