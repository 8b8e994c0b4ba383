package rpc

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// asError gives err as an Error; what is none is an error of the server itself.
func asError(err error) *muster.Error {
	var e *muster.Error
	if errors.As(err, &e) {
		return e
	}
	return muster.Errorf(muster.KindError, "%v", err)
}

// ListJobs lists jobs, newest first, a page at a time.
func (s *Server) ListJobs(ctx context.Context, r *wire.ListJobsRequest) (*wire.ListJobsReply, error) {
	state, err := s.read(ctx, r.Stale)
	if err != nil {
		return nil, err
	}
	reply, err := state.Jobs(r, CallerFrom(ctx).User)
	if err == nil && r.Waits {
		s.sayWaits(ctx, reply.Jobs)
	}
	return reply, err
}

const (
	waitsSaid  = 20                     // of how many jobs of a list it is said why they wait
	waitsLimit = 500 * time.Millisecond // how long a list waits for what only the leader knows
)

// sayWaits asks the leader why the pending ones of jobs wait, of the oldest of them; a list without is still one.
func (s *Server) sayWaits(ctx context.Context, jobs []*wire.JobInfo) {
	ctx, cancel := context.WithTimeout(ctx, waitsLimit)
	defer cancel()
	said := 0
	for _, job := range slices.Backward(jobs) {
		if job.State != muster.JobPending.String() {
			continue
		}
		if said++; said > waitsSaid {
			return
		}
		why, err := s.explain(ctx, waitsLimit, muster.JobID(job.Id))
		if err != nil {
			return
		}
		job.Waits, job.Position, job.Of = why.First(), why.Position, why.Of
	}
}

// GetJob describes one job.
func (s *Server) GetJob(ctx context.Context, r *wire.GetJobRequest) (*wire.JobInfo, error) {
	state, err := s.read(ctx, r.Stale)
	if err != nil {
		return nil, err
	}
	id, err := state.ResolveJob(r.Job, CallerFrom(ctx).User)
	if err != nil {
		return nil, err
	}
	job, err := jobIn(state, id, true, r.Spec)
	if err == nil && r.Waits {
		s.sayWaits(ctx, []*wire.JobInfo{job})
	}
	return job, err
}

func jobIn(state *wire.Reader, id muster.JobID, detail, spec bool) (*wire.JobInfo, error) {
	job, ok := state.Job(id, detail, spec)
	if !ok {
		return nil, muster.Errorf(muster.KindNotFound, "no job %s", id)
	}
	return job, nil
}

// WatchJobs gives each job at once, then at each change, and ends when all have ended.
func (s *Server) WatchJobs(r *wire.WatchJobsRequest, stream grpc.ServerStreamingServer[wire.JobInfo]) error {
	ctx := stream.Context()
	if len(r.Jobs) == 0 || len(r.Jobs) > maxNamed {
		return muster.Errorf(muster.KindUsage, "%d jobs are named to watch; say 1 to %d", len(r.Jobs), maxNamed)
	}
	state, err := s.read(ctx, false)
	if err != nil {
		return err
	}
	ids := make([]muster.JobID, len(r.Jobs))
	for i, ref := range r.Jobs {
		if ids[i], err = state.ResolveJob(ref, CallerFrom(ctx).User); err != nil {
			return err
		}
	}
	wake, stop := s.local.Watch(ids, nil)
	defer stop()
	if err := stream.SendHeader(nil); err != nil { // the client sees that it is served
		return err
	}
	sent := make(map[muster.JobID]*wire.JobInfo, len(ids))
	for {
		began := time.Now()
		state = s.local.Read() // after the watch began: no change falls in between
		live := false
		for _, id := range ids {
			last := sent[id]
			if phase, _ := muster.ParseJobPhase(last.GetState()); phase.Terminal() {
				continue
			}
			job, err := jobIn(state, id, true, false)
			if err != nil {
				return err
			}
			if last == nil || !sameJob(last, job) {
				if err := stream.Send(job); err != nil {
					return err
				}
				sent[id] = job
			}
			phase, _ := muster.ParseJobPhase(job.State)
			live = live || !phase.Terminal()
		}
		if !live {
			return nil
		}
		if err := rest(ctx, time.Since(began)); err != nil {
			return err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rest lets changes gather after a look at many jobs that took so long: four fifths of the time it does not look.
func rest(ctx context.Context, took time.Duration) error {
	if took < time.Millisecond {
		return nil
	}
	pause := time.NewTimer(min(4*took, 200*time.Millisecond))
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sameJob says whether two descriptions differ in nothing but the version they were read at.
func sameJob(a, b *wire.JobInfo) bool {
	version := b.Version
	b.Version = a.Version
	same := proto.Equal(a, b)
	b.Version = version
	return same
}

// staleExplain bounds how long a stale answer waits for what only the leader knows.
const staleExplain = 300 * time.Millisecond

// Why explains a job. Explanations are the leader's; the job itself is read here.
func (s *Server) Why(ctx context.Context, r *wire.WhyRequest) (*wire.WhyReply, error) {
	state, err := s.read(ctx, r.Stale)
	if err != nil {
		return nil, err
	}
	id, err := state.ResolveJob(r.Job, CallerFrom(ctx).User)
	if err != nil {
		return nil, err
	}
	job, err := jobIn(state, id, true, false)
	if err != nil {
		return nil, err
	}
	limit := hold
	if r.Stale {
		limit = staleExplain
	}
	reply, err := s.explain(ctx, limit, id)
	switch {
	case err == nil:
	case r.Stale && muster.KindOf(err) == muster.KindUnavailable:
		reply = &wire.WhyReply{Note: "only a leader explains, and there is none now"}
	default:
		return nil, err
	}
	if reply.Job == nil {
		reply.Job = job
	}
	return reply, nil
}

// ListNodes lists nodes by name, with what the leader suspects.
func (s *Server) ListNodes(ctx context.Context, r *wire.ListNodesRequest) (*wire.ListNodesReply, error) {
	var suspects map[uint32]string
	var asking sync.WaitGroup
	asking.Go(func() { suspects = s.suspects(ctx) })
	state, err := s.read(ctx, r.Stale)
	asking.Wait()
	if err != nil {
		return nil, err
	}
	return state.Nodes(r.Names, suspects)
}

// statusLimit is how long a server may take to say how it is.
const statusLimit = time.Second

// ListServers asks all servers at once; each answers for itself. One that doesn't is listed with the reason.
func (s *Server) ListServers(ctx context.Context, _ *wire.ListServersRequest) (*wire.ListServersReply, error) {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	self := s.local.Status()
	known := s.local.Servers()
	reply := &wire.ListServersReply{Servers: make([]*wire.ServerInfo, len(known))}
	var asking sync.WaitGroup
	for i, server := range known {
		if server.Id == self.Id {
			reply.Servers[i] = answered(server, self)
			continue
		}
		asking.Go(func() { reply.Servers[i] = s.askStatus(ctx, server) })
	}
	asking.Wait()
	if len(known) == 0 {
		reply.Servers = append(reply.Servers, self)
	}
	slices.SortStableFunc(reply.Servers, func(a, b *wire.ServerInfo) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Id, b.Id))
	})
	return reply, nil
}

func (s *Server) askStatus(ctx context.Context, server *wire.ServerInfo) *wire.ServerInfo {
	conn, err := s.servers.to(server.Address)
	if err == nil {
		var info *wire.ServerInfo
		if info, err = wire.NewPeersClient(conn).Status(ctx, &wire.StatusRequest{}); err == nil {
			if info.Id == server.Id || server.Id == "" {
				return answered(server, info)
			}
			err = muster.Errorf(muster.KindError, "server %s answers at its address", info.Id)
		}
	}
	silent := proto.CloneOf(server)
	silent.Leader = false
	if ctx.Err() != nil {
		silent.Error = "no answer within " + statusLimit.String()
	} else {
		silent.Error = wire.FromStatus(err).Error()
	}
	return silent
}

// answered completes what a server says of itself with what the configuration says of it.
func answered(known, info *wire.ServerInfo) *wire.ServerInfo {
	merged := proto.CloneOf(info)
	merged.Voter = known.Voter
	if merged.Name == "" {
		merged.Name = known.Name
	}
	if merged.Address == "" {
		merged.Address = known.Address
	}
	return merged
}
