package rpc_test

import (
	"context"
	"net"
	"os/user"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/wire"
)

// socket makes a server listen on a unix socket too.
func (m *fakeMember) socket() string {
	t := m.cluster.t
	path := filepath.Join(t.TempDir(), "muster.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = m.rpc.Serve(l, nil) }()
	t.Cleanup(func() { m.rpc.Stop(); <-served })
	return "unix://" + path
}

func TestTheCallerOnAUnixSocketIsTheUserOfItsProcess(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	c := startCluster(t, 2)
	client, err := rpc.Dial([]string{c.members[1].socket()}, rpc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 2 { // the leader's address, learnt with the first, must not change who calls
		made, err := client.Submit(soon(t), submission("mine"))
		if err != nil {
			t.Fatal(err)
		}
		job, err := client.GetJob(soon(t), &wire.GetJobRequest{Job: &wire.JobRef{Id: made.Ids[0]}})
		if err != nil || job.User != me.Username {
			t.Errorf("the job belongs to %q, %v, want %s", job.GetUser(), err, me.Username)
		}
	}
}

func TestNothingThatAClientSendsChangesWhoItIs(t *testing.T) {
	c := startCluster(t, 1)
	conn := connectTo(t, c.members[0].address)
	ctx := metadata.AppendToOutgoingContext(soon(t), "user", "root", "caller", "root", "x-muster-user", "root", "authorization", "root", "uid", "0")
	reply, err := wire.NewMusterClient(conn).Submit(ctx, submission("mine"))
	if err != nil {
		t.Fatal(err)
	}
	job, err := wire.NewMusterClient(conn).GetJob(ctx, &wire.GetJobRequest{Job: &wire.JobRef{Id: reply.Ids[0]}})
	if err != nil || job.User != agentUser {
		t.Errorf("the job belongs to %q, %v", job.GetUser(), err)
	}
}

func TestOnlyTheAgentsOwnUserSpeaksAsServerOrWorker(t *testing.T) {
	c := startCluster(t, 1)
	address := c.members[0].socket()
	conn, err := grpc.NewClient("unix:"+address[len("unix://"):], grpcPlain()...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	forged := &wire.Command{Command: &wire.Command_Submit{Submit: &wire.Submit{
		Header: &wire.Header{User: "somebody", RequestId: "r"}, Specs: submission("forged").Specs}}}
	_, err = wire.NewPeersClient(conn).Propose(soon(t), &wire.ProposeRequest{Command: forged})
	if muster.KindOf(wire.FromStatus(err)) != muster.KindDenied {
		t.Errorf("a user of the socket proposed in the name of another: %v", err)
	}
	stream, err := wire.NewWorkersClient(conn).Session(soon(t))
	if err == nil {
		_, err = stream.Recv()
	}
	if muster.KindOf(wire.FromStatus(err)) != muster.KindDenied {
		t.Errorf("a user of the socket began a worker's session: %v", err)
	}
}

func TestADutyIsNeverForwarded(t *testing.T) {
	c := startCluster(t, 1)
	peers := wire.NewPeersClient(connectTo(t, c.members[0].address))
	for name, command := range map[string]*wire.Command{
		"a plan":      {Command: &wire.Command_CommitPlan{CommitPlan: &wire.CommitPlan{Term: 1}}},
		"a purge":     {Command: &wire.Command_Purge{Purge: &wire.Purge{Term: 1}}},
		"end leases":  {Command: &wire.Command_EndLeases{EndLeases: &wire.EndLeases{Term: 1}}},
		"a new name":  {Command: &wire.Command_InitCluster{InitCluster: &wire.InitCluster{ClusterId: "other"}}},
		"nothing":     {},
		"no command":  nil,
		"a wake":      {Command: &wire.Command_Wake{Wake: &wire.Wake{Term: 1}}},
		"a drain due": {Command: &wire.Command_DrainDue{DrainDue: &wire.DrainDue{Term: 1}}},
	} {
		_, err := peers.Propose(context.Background(), &wire.ProposeRequest{Command: command})
		if kind := muster.KindOf(wire.FromStatus(err)); kind != muster.KindDenied && kind != muster.KindInvalid {
			t.Errorf("%s was answered with %v", name, err)
		}
	}
}
