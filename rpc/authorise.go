package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// action is what a caller wants to do, in the words in which it will be granted.
type action string

const (
	actionRead      action = "read"     // jobs, nodes, servers, logs
	actionRunJobs   action = "run jobs" // submit, cancel, hold, release, requeue
	actionOperate   action = "operate"  // drain, fence, label, remove; queues
	actionBeServer  action = "be a server"
	actionBeAWorker action = "be a worker"
)

// apiVersion is what the methods of all services begin with. Another major version has another one.
const apiVersion = "muster.v1"

// actions says what each method does. A method without a row is denied.
var actions = map[string]action{
	wire.Muster_Submit_FullMethodName:       actionRunJobs,
	wire.Muster_Cancel_FullMethodName:       actionRunJobs,
	wire.Muster_Release_FullMethodName:      actionRunJobs,
	wire.Muster_Hold_FullMethodName:         actionRunJobs,
	wire.Muster_SetPriority_FullMethodName:  actionRunJobs,
	wire.Muster_Requeue_FullMethodName:      actionRunJobs,
	wire.Muster_ListJobs_FullMethodName:     actionRead,
	wire.Muster_Events_FullMethodName:       actionRead,
	wire.Muster_WhoAmI_FullMethodName:       actionRead,
	wire.Muster_RemoveNodes_FullMethodName:  actionOperate,
	wire.Muster_LabelNode_FullMethodName:    actionOperate,
	wire.Muster_GetJob_FullMethodName:       actionRead,
	wire.Muster_WatchJobs_FullMethodName:    actionRead,
	wire.Muster_Why_FullMethodName:          actionRead,
	wire.Muster_Logs_FullMethodName:         actionRead,
	wire.Muster_ListNodes_FullMethodName:    actionRead,
	wire.Muster_ListServers_FullMethodName:  actionRead,
	wire.Muster_ListQueues_FullMethodName:   actionRead,
	wire.Muster_ApplyQueues_FullMethodName:  actionOperate,
	wire.Muster_DrainNodes_FullMethodName:   actionOperate,
	wire.Muster_UndrainNodes_FullMethodName: actionOperate,
	wire.Muster_FenceNode_FullMethodName:    actionOperate,

	wire.Peers_Propose_FullMethodName:   actionBeServer,
	wire.Peers_ReadIndex_FullMethodName: actionBeServer,
	wire.Peers_Renew_FullMethodName:     actionBeServer,
	wire.Peers_Explain_FullMethodName:   actionBeServer,
	wire.Peers_Status_FullMethodName:    actionBeServer,
	wire.Peers_Suspects_FullMethodName:  actionBeServer,

	wire.Workers_Session_FullMethodName: actionBeAWorker,
}

// authorise decides whether caller may call method. Until there are roles every caller may use the cluster; only the agent's
// own user may speak for a server (whose word on who submitted a job is taken) or a worker.
func authorise(caller Caller, method string) error {
	act, known := actions[method]
	switch {
	case !known:
		return muster.Errorf(muster.KindDenied, "this server speaks %s, which has no method %s", apiVersion, method).
			WithHint("Both sides must run the same major version of muster")
	case caller.User == "":
		return muster.Errorf(muster.KindDenied, "who is calling is not known")
	case (act == actionBeServer || act == actionBeAWorker) && !caller.Agent:
		return muster.Errorf(muster.KindDenied, "user %s may not %s: only the agent's own user may", caller.User, act)
	}
	return nil
}

// admit finds the caller and lets it through, or refuses.
func admit(ctx context.Context, method string) (context.Context, error) {
	caller, ok := connectionCaller(ctx)
	if !ok {
		return nil, muster.Errorf(muster.KindDenied, "who is calling is not known")
	}
	if err := authorise(caller, method); err != nil {
		return nil, err
	}
	return withCaller(ctx, caller), nil
}

func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (reply any, err error) {
	began := time.Now()
	defer func() { s.metrics.call(methodLabel(info.FullMethod), began, err) }()
	ctx, err = admit(ctx, info.FullMethod)
	if err != nil {
		return nil, wire.StatusOf(err)
	}
	reply, err = handle(ctx, req)
	if err != nil {
		return nil, wire.StatusOf(err)
	}
	return reply, nil
}

// unknown answers calls of services that this version does not have: admit has refused them, with both versions named.
func unknown(any, grpc.ServerStream) error { return nil }

func (s *Server) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	method := methodLabel(info.FullMethod)
	open := s.metrics.streams.WithLabelValues(method)
	open.Inc()
	defer func() { open.Dec(); s.metrics.calls.WithLabelValues(method, codeLabel(err)).Inc() }()
	ctx, err := admit(stream.Context(), info.FullMethod)
	if err != nil {
		return wire.StatusOf(err)
	}
	// The stream ends with the server: a client that follows something goes on elsewhere.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	if err := handle(srv, &callerStream{stream, ctx}); err != nil {
		if s.closing.Err() != nil {
			err = errStopping
		}
		return wire.StatusOf(err)
	}
	return nil
}

type callerStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *callerStream) Context() context.Context { return s.ctx }
