package cluster

import (
	"io"
	"net"
	"testing"
	"time"
)

func TestOnePortIsSharedByTheFirstByte(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	raftSide, grpcSide := Split(l)
	say := func(text string) net.Conn {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		io.WriteString(conn, text)
		return conn
	}
	heard := func(side net.Listener, want string) {
		t.Helper()
		conn, err := side.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		got := make([]byte, len(want))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
			t.Errorf("heard %q (%v), want %q", got, err, want)
		}
	}
	say("") // says nothing: it holds nobody up, now or at the end
	say("PRI * HTTP/2.0")
	heard(grpcSide, "PRI * HTTP/2.0")
	say("\xa7raft")
	heard(raftSide, "raft")

	if err := raftSide.Close(); err != nil {
		t.Error(err)
	}
	say("PRI again")
	heard(grpcSide, "PRI again") // one side's end is not the other's
	if err := grpcSide.Close(); err != nil {
		t.Error(err)
	}
	if _, err := grpcSide.Accept(); err == nil {
		t.Error("accepted after the end")
	}
}
