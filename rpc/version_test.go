package rpc_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

func TestAnotherMajorVersionIsRefusedWithBothNamed(t *testing.T) {
	c := startCluster(t, 1)
	conn, err := grpc.NewClient("passthrough:///"+c.members[0].address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	err = wire.FromStatus(conn.Invoke(soon(t), "/muster.v2.Muster/Submit", &wire.SubmitRequest{}, &wire.SubmitReply{}))
	if muster.KindOf(err) != muster.KindDenied || !strings.Contains(err.Error(), "muster.v1") || !strings.Contains(err.Error(), "muster.v2") {
		t.Errorf("got %v", err)
	}
}
