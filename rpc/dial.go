package rpc

import (
	"context"
	"crypto/tls"
	"io"
	"net"

	"google.golang.org/grpc"
)

// WorkerDial is how a worker connects to servers: a connection for each session, closed with it. dial nil: TCP, or a unix
// socket for "unix:///path"; secure nil: plaintext.
func WorkerDial(dial func(context.Context, string) (net.Conn, error), secure *tls.Config) func(context.Context, string) (grpc.ClientConnInterface, io.Closer, error) {
	options := toServer(dial, secure)
	return func(_ context.Context, address string) (grpc.ClientConnInterface, io.Closer, error) {
		conn, err := grpc.NewClient("passthrough:///"+address, options...)
		if err != nil {
			return nil, nil, err
		}
		return conn, conn, nil
	}
}
