package rpc

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os/user"
	"strconv"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Caller is who makes a request. It comes from the connection alone: nothing that a client sends can change it.
type Caller struct {
	User  string
	Agent bool // the agent's own user, who may also speak as a server or a worker
}

type callerKey struct{}

// CallerFrom gives the caller of the request that ctx belongs to. Every handler has one; elsewhere it is the zero Caller,
// who may do nothing.
func CallerFrom(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

func withCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// callerOf tells who is at the other end of conn: over a unix socket the user of the peer's process, over TCP the agent's
// own user, since until certificates exist that listener is on loopback, or the operator said insecure.
func callerOf(conn net.Conn, agent string) (Caller, error) {
	for {
		inner, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = inner.NetConn()
	}
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return Caller{User: agent, Agent: true}, nil
	}
	uid, err := peerUID(socket)
	if err != nil {
		return Caller{}, fmt.Errorf("who is calling on %s: %w", conn.LocalAddr(), err)
	}
	name := userName(uid)
	return Caller{User: name, Agent: name == agent}, nil
}

var userNames sync.Map // uid -> name; users that exist, so its size is theirs

// userName gives the name of a user of this machine; a uid without one is its own name.
func userName(uid uint32) string {
	if name, ok := userNames.Load(uid); ok {
		return name.(string)
	}
	id := strconv.FormatUint(uint64(uid), 10)
	u, err := user.LookupId(id)
	if err != nil {
		return id
	}
	userNames.Store(uid, u.Username)
	return u.Username
}

// callerCredentials finds the caller when a connection begins, and does the TLS handshake where its listener asks for one.
type callerCredentials struct{ user string }

type callerInfo struct {
	credentials.CommonAuthInfo
	caller Caller
}

func (callerInfo) AuthType() string { return "muster" }

func (c *callerCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	info := callerInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}
	conn := raw
	var secure credentials.TransportCredentials
	if accepted, ok := raw.(*acceptedConn); ok {
		conn, secure = accepted.Conn, accepted.secure
	}
	var err error
	if info.caller, err = callerOf(conn, c.user); err != nil {
		return nil, nil, err
	}
	if secure != nil {
		if conn, _, err = secure.ServerHandshake(conn); err != nil {
			return nil, nil, err
		}
		info.SecurityLevel = credentials.PrivacyAndIntegrity
	}
	return conn, info, nil
}

func (c *callerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, fmt.Errorf("these credentials are a server's")
}

func (c *callerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "muster"}
}
func (c *callerCredentials) Clone() credentials.TransportCredentials { return c }
func (c *callerCredentials) OverrideServerName(string) error         { return nil }

// acceptedConn carries its listener's TLS to the handshake: a gRPC server has one set of credentials for all listeners.
type acceptedConn struct {
	net.Conn
	secure credentials.TransportCredentials
}

type listener struct {
	net.Listener
	secure credentials.TransportCredentials
}

func listenFor(l net.Listener, secure *tls.Config) net.Listener {
	if secure == nil {
		return l
	}
	return &listener{l, credentials.NewTLS(secure)}
}

func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &acceptedConn{conn, l.secure}, nil
}

// connectionCaller gives the caller that the handshake found.
func connectionCaller(ctx context.Context) (Caller, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Caller{}, false
	}
	info, ok := p.AuthInfo.(callerInfo)
	return info.caller, ok
}

// httpCaller finds the caller of an HTTP connection. A connection whose caller can't be told is nobody's: refused later.
func (s *Server) httpCaller(ctx context.Context, conn net.Conn) context.Context {
	caller, err := callerOf(conn, s.user)
	if err != nil {
		s.log.Warn("cannot tell who calls", "error", err)
		return ctx
	}
	return withCaller(ctx, caller)
}
