package rpc

import (
	"context"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// peersService is what this server does for others when it leads; else it says so, and they look for the one that does.
type peersService struct {
	wire.UnimplementedPeersServer
	local Local
}

func (p *peersService) Propose(ctx context.Context, r *wire.ProposeRequest) (*wire.ProposeReply, error) {
	if err := forwardable(r.Command); err != nil {
		return nil, err
	}
	if err := p.leads(); err != nil {
		return nil, err
	}
	return p.local.Propose(ctx, r.Command)
}

func (p *peersService) ReadIndex(ctx context.Context, _ *wire.ReadIndexRequest) (*wire.ReadIndexReply, error) {
	if err := p.leads(); err != nil {
		return nil, err
	}
	index, err := p.local.ReadIndex(ctx)
	if err != nil {
		return nil, err
	}
	return &wire.ReadIndexReply{Index: uint64(index)}, nil
}

func (p *peersService) Renew(ctx context.Context, r *wire.RenewBatch) (*wire.RenewBatchReply, error) {
	if err := p.leads(); err != nil {
		return nil, err
	}
	return p.local.Renew(ctx, r)
}

func (p *peersService) Explain(ctx context.Context, r *wire.WhyRequest) (*wire.WhyReply, error) {
	if err := p.leads(); err != nil {
		return nil, err
	}
	return p.local.Explain(ctx, muster.JobID(r.GetJob().GetId()))
}

func (p *peersService) Suspects(ctx context.Context, _ *wire.SuspectsRequest) (*wire.SuspectsReply, error) {
	if err := p.leads(); err != nil {
		return nil, err
	}
	return p.local.Suspects(ctx)
}

func (p *peersService) Status(context.Context, *wire.StatusRequest) (*wire.ServerInfo, error) {
	return p.local.Status(), nil
}

func (p *peersService) leads() error {
	if _, self := p.local.Leader(); !self {
		return muster.Errorf(muster.KindUnavailable, "this server does not lead")
	}
	return nil
}

// forwardable refuses what may not come from another server: duties are decided by the leader itself. Requests of clients have
// a header, and workers' have none.
func forwardable(c *wire.Command) error {
	m := c.ProtoReflect()
	which := m.WhichOneof(m.Descriptor().Oneofs().Get(0))
	switch {
	case which == nil:
		return muster.Errorf(muster.KindInvalid, "a proposal without a command, or with one that this version does not know")
	case c.GetRegisterNode() != nil, c.GetReportAllocs() != nil, which.Message().Fields().ByName("header") != nil:
		return nil
	}
	return muster.Errorf(muster.KindDenied, "%s is the leader's own to decide: it is never forwarded", which.Message().Name())
}
