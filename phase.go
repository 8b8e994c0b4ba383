package muster

// JobPhase is where a job stands. A job goes pending ⇄ running until it is succeeded, failed or cancelled, which never
// changes.
type JobPhase uint8

// The phases of a job, as users see them.
const (
	JobPhaseUnknown JobPhase = iota
	JobHeld                  // waits for a release
	JobPending               // waits for resources, or for the delay of a retry
	JobPreparing             // placed; its ranks get ready
	JobRunning               // its ranks run
	JobStopping              // asked to stop; its ranks are ending
	JobSucceeded
	JobFailed
	JobCancelled
)

var jobPhaseNames = []string{"unknown", "held", "pending", "preparing", "running", "stopping", "succeeded", "failed", "cancelled"}

func (p JobPhase) String() string { return nameOf(jobPhaseNames, int(p)) }

// Terminal says whether the phase is final.
func (p JobPhase) Terminal() bool { return p >= JobSucceeded }

// Placed says whether the job's current attempt holds resources.
func (p JobPhase) Placed() bool { return p >= JobPreparing && p <= JobStopping }

// ParseJobPhase reads what String wrote.
func ParseJobPhase(s string) (JobPhase, bool) {
	i, ok := indexOf(jobPhaseNames, s)
	return JobPhase(i), ok
}

// AllocPhase is where an allocation stands. It only moves forward.
type AllocPhase uint8

// The phases of an allocation.
const (
	AllocPhaseUnknown AllocPhase = iota
	AllocPlaced                  // decided; the worker may not know yet
	AllocPreparing               // the worker makes its directory, cgroup and ports
	AllocReady                   // waits for the gang's barrier
	AllocRunning                 // its process was started
	AllocStopping                // asked to end
	AllocEnded                   // no process is left; its resources are free
)

var allocPhaseNames = []string{"unknown", "pending", "preparing", "ready", "running", "stopping", "ended"}

func (p AllocPhase) String() string { return nameOf(allocPhaseNames, int(p)) }

// Class says who ended an attempt, and with it whether it is tried again.
type Class uint8

// The classes. What the job did (exit, oom, timeout) is retried as the job's retry block says; what the cluster did (node,
// gpu, preempted, drain, prepare) always, uncounted; cancelled never.
const (
	ClassNone Class = iota
	ClassExit
	ClassOOM
	ClassTimeout
	ClassNode
	ClassGPU
	ClassPreempted
	ClassDrain
	ClassPrepare
	ClassCancelled
	ClassCollateral // of a rank only: stopped because another rank of its attempt ended it
)

var classNames = []string{"", "exit", "oom", "timeout", "node", "gpu", "preempted", "drain", "prepare", "cancelled", "collateral"}

func (c Class) String() string { return nameOf(classNames, int(c)) }

// ParseClass reads what String wrote.
func ParseClass(s string) (Class, bool) {
	i, ok := indexOf(classNames, s)
	return Class(i), ok
}

// OfCluster says whether the cluster, not the job, ended the attempt.
func (c Class) OfCluster() bool { return c >= ClassNode && c <= ClassPrepare }

// CountsForLoopGuard says whether five in a row hold the job.
func (c Class) CountsForLoopGuard() bool { return c == ClassNode || c == ClassGPU || c == ClassPrepare }

// NodeState is what users see of a node.
type NodeState uint8

// The states of a node. Suspect is the leader's own view (silence, gossip) and not in the replicated state.
const (
	NodeStateUnknown NodeState = iota
	NodeReady
	NodeDraining // nothing new starts
	NodeDrained  // draining, and nothing runs any more
	NodeSuspect  // silent: no new work, nothing moved yet
	NodeLost     // its leases ran out, or it was fenced
)

var nodeStateNames = []string{"unknown", "ready", "draining", "drained", "suspect", "lost"}

func (s NodeState) String() string { return nameOf(nodeStateNames, int(s)) }

// GPUHealth is how a GPU feels.
type GPUHealth uint8

// The health of a GPU.
const (
	GPUHealthUnknown GPUHealth = iota
	GPUHealthy
	GPUDegraded
	GPUQuarantined
	GPULost // no longer in the machine
)

var gpuHealthNames = []string{"unknown", "healthy", "degraded", "quarantined", "lost"}

func (h GPUHealth) String() string { return nameOf(gpuHealthNames, int(h)) }

func nameOf(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "unknown"
}

func indexOf(names []string, s string) (int, bool) {
	for i, name := range names {
		if name == s {
			return i, true
		}
	}
	return 0, false
}
