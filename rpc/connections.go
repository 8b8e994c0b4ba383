package rpc

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/musterhpc/muster"
)

// maxAnswer bounds an answer: a page of a thousand jobs with their ranks.
const maxAnswer = 64 << 20

type dialFunc func(ctx context.Context, address string) (net.Conn, error)

// DialPlain connects over TCP, or over a unix socket for "unix:///path". A machine that went away is noticed by the
// kernel's own probes after three seconds: gRPC's, from the client's side, come every ten at the soonest.
func DialPlain(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{
		Timeout:         2 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 2},
	}
	if path, ok := strings.CutPrefix(address, unixScheme); ok {
		return d.DialContext(ctx, "unix", path)
	}
	return d.DialContext(ctx, "tcp", address)
}

const unixScheme = "unix://"

// toServer gives the options of connections to servers, which permit frequent keepalive probes.
func toServer(dial dialFunc, secure *tls.Config) []grpc.DialOption {
	return append(toWorker(dial, secure),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 2 * time.Second}))
}

// toWorker gives the options of connections to workers.
func toWorker(dial dialFunc, secure *tls.Config) []grpc.DialOption {
	if dial == nil {
		dial = DialPlain
	}
	creds := insecure.NewCredentials()
	if secure != nil {
		creds = credentials.NewTLS(secure)
	}
	return []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(dial),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			// A restarted server must be found again within the time that requests are held.
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithIdleTimeout(5 * time.Minute),
	}
}

// connections keeps one connection for each address: a call over many connections costs twice that over few.
type connections struct {
	options []grpc.DialOption

	mu        sync.Mutex
	byAddress map[string]*grpc.ClientConn
	closed    bool
}

func newConnections(options []grpc.DialOption) *connections {
	return &connections{options: options, byAddress: make(map[string]*grpc.ClientConn)}
}

// to gives the connection to address. It connects with the first call.
func (c *connections) to(address string) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errStopping
	}
	if conn := c.byAddress[address]; conn != nil {
		if conn.GetState() == connectivity.TransientFailure {
			conn.ResetConnectBackoff() // whoever calls has a pace of its own, and must not miss a server that is back
		}
		return conn, nil
	}
	options := c.options
	if strings.HasPrefix(address, unixScheme) {
		options = append(options[:len(options):len(options)], grpc.WithAuthority("localhost"))
	}
	conn, err := grpc.NewClient("passthrough:///"+address, options...)
	if err != nil {
		return nil, muster.Errorf(muster.KindUnavailable, "address %q: %v", address, err)
	}
	c.byAddress[address] = conn
	return conn, nil
}

func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, conn := range c.byAddress {
		_ = conn.Close()
	}
	clear(c.byAddress)
}
