package cluster

import (
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/wire"
)

// instruments is what a server measures of the cluster. What is the cluster's is told by the leader alone: added up over all
// servers it is right, whoever leads.
type instruments struct {
	passes    prometheus.Counter
	passTook  prometheus.Histogram
	gangs     *prometheus.CounterVec
	ranks     prometheus.Counter
	renewals  *prometheus.CounterVec
	expired   prometheus.Counter
	nodesLost prometheus.Counter
	elected   prometheus.Counter
	failed    *prometheus.CounterVec
	submitted prometheus.Counter
	ended     *prometheus.CounterVec
	attempts  *prometheus.CounterVec
	wait      prometheus.Histogram
}

func newInstruments() *instruments {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	counters := func(name, help, label string, values ...string) *prometheus.CounterVec {
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		for _, v := range values {
			vec.WithLabelValues(v) // a rate needs a zero to begin with
		}
		return vec
	}
	classes := []string{""}
	for c := muster.ClassExit; c <= muster.ClassCollateral; c++ {
		classes = append(classes, c.String())
	}
	return &instruments{
		passes: counter("muster_scheduler_passes_total", "Passes of the scheduler that this server has made while it led."),
		passTook: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "muster_scheduler_pass_duration_seconds",
			Help: "How long a pass took, without committing what it decided.", Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 12)}),
		gangs: counters("muster_scheduler_gangs_total", "Gangs that passes placed, and of those the ones that the state then refused.",
			"outcome", "placed", "refused"),
		ranks: counter("muster_scheduler_ranks_total", "Ranks of the gangs that were placed."),
		renewals: counters("muster_lease_renewals_total", "Renewals of workers that this server answered while it led.",
			"outcome", "granted", "refused"),
		expired:   counter("muster_leases_expired_total", "Allocations that ended because their lease ran out."),
		nodesLost: counter("muster_nodes_lost_total", "Times that a node was given up as lost."),
		elected:   counter("muster_server_elections_won_total", "Times that this server became the leader."),
		failed: counters("muster_server_duty_failures_total", "Times that a duty of the leader failed and began again.",
			"duty"),
		submitted: counter("muster_jobs_submitted_total", "Jobs submitted while this server led."),
		ended: counters("muster_jobs_ended_total", "Jobs that ended while this server led, by state.",
			"state", "succeeded", "failed", "cancelled"),
		attempts: counters("muster_job_attempts_ended_total", "Attempts that ended and did not end their job, by class.", "class", classes[1:]...),
		wait: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "muster_job_start_wait_seconds",
			Help: "From a job's submission until all its ranks ran for the first time.", Buckets: prometheus.ExponentialBuckets(0.005, 4, 13)}),
	}
}

// Collectors are what this server measures of the cluster and of itself, for a registry.
func (s *Server) Collectors() []prometheus.Collector {
	return s.metrics.collectors(s)
}

// Described are the collectors of no server: for what they are called and mean.
func Described() []prometheus.Collector { return newInstruments().collectors(nil) }

func (m *instruments) collectors(of *Server) []prometheus.Collector {
	return []prometheus.Collector{m.passes, m.passTook, m.gangs, m.ranks, m.renewals, m.expired, m.nodesLost, m.elected, m.failed,
		m.submitted, m.ended, m.attempts, m.wait, serverGauges{of}}
}

// serverGauges reads its values off the server when they are asked for.
type serverGauges struct{ server *Server }

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Of every server.
var (
	descLeads   = gauge("muster_server_leader", "1 while this server leads and has begun its duties, else 0.")
	descTerm    = gauge("muster_server_term", "Raft's term, as this server knows it.")
	descApplied = gauge("muster_server_applied_index", "Log position that this server's state has reached.")
	descCommit  = gauge("muster_server_commit_index", "Log position that this server knows to be committed.")
	descLast    = gauge("muster_server_last_index", "Log position of the newest entry that this server holds.")
	descVoters  = gauge("muster_server_voters", "Servers that vote, in the newest configuration that this server knows.")
	descClock   = gauge("muster_server_clock_off", "1 while this server's clock is more than 5 s off the others': it does not stand for election.")
	descJobs    = gauge("muster_server_jobs", "Jobs that this server remembers, ended ones included.")
)

// Of the leader alone.
var (
	descContact   = gauge("muster_quorum_contact_age_seconds", "How long ago a majority is known to have taken this server for the leader. Told by the leader alone.")
	descQueueJobs = gauge("muster_queue_jobs", "Jobs of a queue: pending, or holding resources. Told by the leader alone.", "queue", "state")
	descQueueGPUs = gauge("muster_queue_gpus", "GPUs that a queue's jobs hold. Told by the leader alone.", "queue")
	descNodes     = gauge("muster_nodes", "Nodes by state. Told by the leader alone.", "state")
	descGPUs      = gauge("muster_gpus", "GPUs by state: busy, free, or out (of service, by its health or its node's state). Told by the leader alone.",
		"model", "state", "health")
	descLeases = gauge("muster_leases", "Allocations that have not ended; each holds a lease. Told by the leader alone.")
)

// Describe gives what every server and the leader have.
func (g serverGauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descLeads, descTerm, descApplied, descCommit, descLast, descVoters, descClock, descJobs,
		descContact, descQueueJobs, descQueueGPUs, descNodes, descGPUs, descLeases} {
		out <- d
	}
}

// Collect reads them.
func (g serverGauges) Collect(out chan<- prometheus.Metric) {
	s := g.server
	send := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	newest := s.hub.newest()
	l := s.leadership.Load()
	send(descLeads, truth(l != nil && isClosed(l.ready)))
	send(descTerm, float64(s.raft.CurrentTerm()))
	send(descApplied, float64(newest.index))
	send(descCommit, float64(s.raft.CommitIndex()))
	send(descLast, float64(s.raft.LastIndex()))
	voters := 0
	for _, server := range s.raftServers() {
		if server.Suffrage == raft.Voter {
			voters++
		}
	}
	send(descVoters, float64(voters))
	send(descClock, truth(s.clockWrong.Load()))
	send(descJobs, float64(newest.snapshot.JobCount()))
	if l == nil || !isClosed(l.ready) {
		return
	}
	if contact, _ := s.contact.value(l.term); contact > 0 {
		send(descContact, max(0, time.Duration(s.config.Clock.Boot()-contact).Seconds()))
	}
	if silent, err := s.Suspects(l.ctx); err == nil {
		tellState(newest.snapshot, silent.GetNodes(), send)
	}
}

// tellState counts what the cluster has.
func tellState(s *state.Snapshot, suspects []*wire.Suspect, send func(d *prometheus.Desc, v float64, labels ...string)) {
	silent := make(map[muster.NodeID]bool, len(suspects))
	for _, n := range suspects {
		silent[muster.NodeID(n.Node)] = true
	}
	for q := range s.Queues() {
		send(descQueueJobs, float64(q.Pending), q.Name, "pending")
		send(descQueueJobs, float64(q.Running), q.Name, "running")
		send(descQueueGPUs, float64(q.GPUs), q.Name)
	}
	nodes := map[muster.NodeState]int{}
	for p := muster.NodeReady; p <= muster.NodeLost; p++ {
		nodes[p] = 0
	}
	gpus := map[[3]string]int{}
	leases := 0
	for n := range s.Nodes() {
		is := n.State()
		if silent[n.ID] && !n.Lost {
			is = muster.NodeSuspect
		}
		nodes[is]++
		leases += n.Allocs
		var held muster.SlotSet
		for a := range s.AllocsOnNode(n.ID) {
			held |= a.Slots
		}
		for slot := range n.GPUs {
			use := "free"
			switch {
			case held.Has(slot):
				use = "busy"
			case !n.FreeSlots.Has(slot) || is != muster.NodeReady:
				use = "out"
			}
			gpus[[3]string{n.GPUs[slot].Model, use, n.GPUs[slot].Health.String()}]++
		}
	}
	for is, count := range nodes {
		send(descNodes, float64(count), is.String())
	}
	for key, count := range gpus {
		send(descGPUs, float64(count), key[:]...)
	}
	send(descLeases, float64(leases))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// passed counts a pass and what it decided.
func (m *instruments) passed(gangs []state.GangPlacement, took time.Duration) {
	m.passes.Inc()
	m.passTook.Observe(took.Seconds())
	m.gangs.WithLabelValues("placed").Add(float64(len(gangs)))
	for i := range gangs {
		m.ranks.Add(float64(len(gangs[i].Ranks)))
	}
}

// refused counts gangs of a plan that the state did not take.
func (m *instruments) refused(gangs int) { m.gangs.WithLabelValues("refused").Add(float64(gangs)) }

// answered counts renewals.
func (m *instruments) answered(granted []bool) {
	yes := 0
	for _, ok := range granted {
		if ok {
			yes++
		}
	}
	m.renewals.WithLabelValues("granted").Add(float64(yes))
	m.renewals.WithLabelValues("refused").Add(float64(len(granted) - yes))
}
