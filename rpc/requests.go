package rpc

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// The requests that change something. Each is checked here, made a command on behalf of the caller, and committed at the
// leader.

// maxNamed bounds the jobs or nodes that one request names, maxRequestID the length of its id.
const (
	maxNamed     = 10_000
	maxRequestID = 128
)

// header names the request: one that came without an id gets one here, so that this server's own retries make it once.
func header(ctx context.Context, requestID string) (*wire.Header, error) {
	if len(requestID) > maxRequestID {
		return nil, muster.Errorf(muster.KindInvalid, "the request id has %d characters; at most %d are remembered", len(requestID), maxRequestID)
	}
	if requestID == "" {
		requestID = rand.Text()
	}
	return &wire.Header{RequestId: requestID, User: CallerFrom(ctx).User}, nil
}

// Submit makes jobs, all or none.
func (s *Server) Submit(ctx context.Context, r *wire.SubmitRequest) (*wire.SubmitReply, error) {
	h, err := header(ctx, r.RequestId)
	if err != nil {
		return nil, err
	}
	if err := checkSpecs(r.Specs); err != nil {
		return nil, err
	}
	if r.StartWithin < 0 {
		return nil, muster.Errorf(muster.KindUsage, "a job can't start before it is submitted").WithHint("Say --start-within 10m")
	}
	command := &wire.Command{Command: &wire.Command_Submit{Submit: &wire.Submit{Header: h, Specs: r.Specs, Pend: r.Pend, Hold: r.Hold,
		StartWithin: r.StartWithin, Groups: s.groups.of(h.User)}}}
	if size := proto.Size(command); size > maxCommand {
		return nil, muster.Errorf(muster.KindInvalid, "the submission has %d bytes; at most %s fit into one", size, muster.Bytes(maxCommand)).
			WithHint("Submit it in parts")
	}
	result, err := s.propose(ctx, command)
	if err != nil {
		return nil, err
	}
	leader, _ := s.local.Leader()
	notes := result.Notes
	if s.shared == "" && slices.ContainsFunc(r.Specs, keepsSomething) {
		notes = append(notes, "MUSTER_CHECKPOINT_DIR is on each node's own disk: an attempt on another node finds it empty")
	}
	return &wire.SubmitReply{Ids: result.Jobs, Notes: notes, Leader: leader}, nil
}

// keepsSomething says whether a job keeps something from one attempt for the next, as far as its text shows.
func keepsSomething(spec *wire.JobSpec) bool {
	return slices.ContainsFunc(spec.Groups, func(g *wire.Group) bool {
		t := g.GetTask()
		text := strings.Join(append([]string{t.GetScript(), t.GetCommand(), t.GetDir()}, t.GetArgs()...), " ")
		return g.GetCheckpoint() != nil && !proto.Equal(g.GetCheckpoint(), &wire.Checkpoint{}) ||
			strings.Contains(text, "MUSTER_CHECKPOINT_DIR") || strings.Contains(text, "${checkpoint.dir}")
	})
}

// checkSpecs fills in defaults and validates, in place.
func checkSpecs(specs []*wire.JobSpec) error {
	if len(specs) == 0 {
		return muster.Errorf(muster.KindInvalid, "the submission holds no job")
	}
	if len(specs) > muster.MaxJobs {
		return muster.Errorf(muster.KindInvalid, "the submission holds %d jobs; at most %d go into one", len(specs), muster.MaxJobs).
			WithHint("Submit them in parts")
	}
	for i, p := range specs {
		spec, err := p.Domain()
		if err != nil {
			return specError(i, muster.Errorf(muster.KindInvalid, "job %q: %v", p.GetName(), err))
		}
		spec.FillDefaults()
		if err := spec.Validate(); err != nil {
			return specError(i, err)
		}
		specs[i] = wire.JobSpecOf(spec)
	}
	return nil
}

// specError says which job of the submission an error is about.
func specError(i int, err *muster.Error) error {
	e := *err
	if e.Field == "" {
		e.Field = fmt.Sprintf("jobs[%d]", i)
	} else {
		e.Field = fmt.Sprintf("jobs[%d].%s", i, e.Field)
	}
	return &e
}

// Cancel asks jobs to stop.
func (s *Server) Cancel(ctx context.Context, r *wire.CancelRequest) (*wire.NotesReply, error) {
	h, err := header(ctx, r.RequestId)
	if err != nil {
		return nil, err
	}
	jobs, err := s.resolveAll(ctx, r.Jobs)
	if err != nil {
		return nil, err
	}
	mode := muster.StopSave
	if r.Now {
		mode = muster.StopKill
	}
	return s.notes(ctx, &wire.Command{Command: &wire.Command_Cancel{Cancel: &wire.Cancel{Header: h, Jobs: jobs, Mode: uint32(mode)}}}, jobs)
}

// DrainNodes stops new starts on nodes.
func (s *Server) DrainNodes(ctx context.Context, r *wire.DrainRequest) (*wire.NotesReply, error) {
	h, err := header(ctx, r.RequestId)
	if err != nil {
		return nil, err
	}
	if err := checkNodes(r.Nodes); err != nil {
		return nil, err
	}
	if r.HasDeadline && r.Deadline < 0 {
		return nil, muster.Errorf(muster.KindUsage, "the deadline of a drain lies in the past").WithHint("0s stops what runs now")
	}
	return s.notes(ctx, &wire.Command{Command: &wire.Command_DrainNodes{DrainNodes: &wire.DrainNodes{
		Header: h, Nodes: r.Nodes, Reason: r.Reason, HasDeadline: r.HasDeadline, Deadline: r.Deadline}}}, nil)
}

// UndrainNodes takes a drain back.
func (s *Server) UndrainNodes(ctx context.Context, r *wire.UndrainRequest) (*wire.NotesReply, error) {
	h, err := header(ctx, r.RequestId)
	if err != nil {
		return nil, err
	}
	if err := checkNodes(r.Nodes); err != nil {
		return nil, err
	}
	return s.notes(ctx, &wire.Command{Command: &wire.Command_UndrainNodes{UndrainNodes: &wire.UndrainNodes{Header: h, Nodes: r.Nodes}}}, nil)
}

// RemoveNodes takes machines out of the cluster that are gone for good.
func (s *Server) RemoveNodes(ctx context.Context, r *wire.RemoveNodesRequest) (*wire.NotesReply, error) {
	h, err := header(ctx, r.RequestId)
	if err != nil {
		return nil, err
	}
	if err := checkNodes(r.Nodes); err != nil {
		return nil, err
	}
	return s.notes(ctx, &wire.Command{Command: &wire.Command_RemoveNodes{RemoveNodes: &wire.RemoveNodes{Header: h, Nodes: r.Nodes}}}, nil)
}

// LabelNode sets labels of a node over those of its agent's file, or takes such ones back.
func (s *Server) LabelNode(ctx context.Context, r *wire.LabelNodeRequest) (*wire.NotesReply, error) {
	h, err := header(ctx, r.RequestId)
	if err != nil {
		return nil, err
	}
	if err := checkNodes([]string{r.Node}); err != nil {
		return nil, err
	}
	return s.notes(ctx, &wire.Command{Command: &wire.Command_LabelNode{LabelNode: &wire.LabelNode{
		Header: h, Node: r.Node, Set: r.Set, Remove: r.Remove}}}, nil)
}

// FenceNode takes an operator's word that a machine is off.
func (s *Server) FenceNode(ctx context.Context, r *wire.FenceRequest) (*wire.NotesReply, error) {
	h, err := header(ctx, r.RequestId)
	if err != nil {
		return nil, err
	}
	if r.Node == "" {
		return nil, muster.Errorf(muster.KindUsage, "no node is named")
	}
	if err := s.silent(ctx, r.Node); err != nil {
		return nil, err
	}
	return s.notes(ctx, &wire.Command{Command: &wire.Command_FenceNode{FenceNode: &wire.FenceNode{Header: h, Node: r.Node}}}, nil)
}

// silent refuses a node that is heard of: nobody can know that a machine is off that answers, and what runs there would run
// twice.
func (s *Server) silent(ctx context.Context, name string) error {
	reply, err := s.ListNodes(ctx, &wire.ListNodesRequest{Names: []string{name}})
	if err != nil {
		return err
	}
	for _, n := range reply.Nodes {
		if n.State != muster.NodeSuspect.String() && n.State != muster.NodeLost.String() {
			return muster.Errorf(muster.KindConflict, "%s answers: its machine is not off", name).
				WithHint("To empty it: muster node drain %s --reason … --deadline 0s", name)
		}
	}
	return nil
}

func (s *Server) notes(ctx context.Context, command *wire.Command, ids []uint64) (*wire.NotesReply, error) {
	result, err := s.propose(ctx, command)
	if err != nil {
		return nil, err
	}
	if len(result.Jobs) > 0 {
		ids = result.Jobs
	}
	return &wire.NotesReply{Notes: result.Notes, Ids: ids}, nil
}

func checkNodes(names []string) error {
	if len(names) == 0 {
		return muster.Errorf(muster.KindUsage, "no node is named")
	}
	if len(names) > maxNamed {
		return muster.Errorf(muster.KindInvalid, "%d nodes are named; at most %d go into one request", len(names), maxNamed)
	}
	return nil
}

// resolveAll turns names into numbers. Numbers need no look at the state: the command itself says which are unknown.
func (s *Server) resolveAll(ctx context.Context, refs []*wire.JobRef) ([]uint64, error) {
	if len(refs) == 0 {
		return nil, muster.Errorf(muster.KindUsage, "no job is named")
	}
	if len(refs) > maxNamed {
		return nil, muster.Errorf(muster.KindInvalid, "%d jobs are named; at most %d go into one request", len(refs), maxNamed)
	}
	ids := make([]uint64, len(refs))
	var state *wire.Reader
	for i, ref := range refs {
		if ref.GetId() != 0 {
			ids[i] = ref.Id
			continue
		}
		if state == nil {
			var err error
			if state, err = s.read(ctx, false); err != nil {
				return nil, err
			}
		}
		id, err := state.ResolveJob(ref, CallerFrom(ctx).User)
		if err != nil {
			return nil, err
		}
		ids[i] = uint64(id)
	}
	return ids, nil
}
