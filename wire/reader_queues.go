package wire

import (
	"slices"
	"strings"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// Queues lists the queues by name; what each counts includes the queues in it.
func (r *Reader) Queues() *ListQueuesReply {
	policy := r.snapshot.Policy()
	reply := &ListQueuesReply{Policy: PolicyOf(&policy), Version: VersionOf(r.Version())}
	at := map[string]*QueueInfo{}
	for q := range r.snapshot.Queues() {
		info := &QueueInfo{Spec: QueueSpecOf(q.Rules())}
		at[q.Name] = info
		reply.Queues = append(reply.Queues, info)
	}
	upwards := func(queue string, each func(*QueueInfo)) {
		for name := queue; name != ""; name = muster.ParentQueue(name) {
			if info := at[name]; info != nil {
				each(info)
			}
		}
	}
	for q := range r.snapshot.Queues() {
		upwards(q.Name, func(info *QueueInfo) {
			info.Pending += int64(q.Pending)
			info.Running += int64(q.Running)
		})
	}
	for u := range r.snapshot.Usage() {
		if u.MilliGPUs == 0 {
			continue
		}
		upwards(u.Queue, func(info *QueueInfo) {
			info.MilliGpus += u.MilliGPUs
			i, known := slices.BinarySearchFunc(info.Users, u.User, func(x *QueueUser, user string) int { return strings.Compare(x.User, user) })
			if !known {
				info.Users = slices.Insert(info.Users, i, &QueueUser{User: u.User})
			}
			info.Users[i].MilliGpus += u.MilliGPUs
		})
	}
	return reply
}

// TakesQueues says why the state would refuse a tree of queues, or nil.
func (r *Reader) TakesQueues(queues []muster.QueueSpec, policy muster.Policy) *muster.Error {
	return r.snapshot.Takes(&state.ApplyQueues{Queues: queues, Policy: policy})
}
