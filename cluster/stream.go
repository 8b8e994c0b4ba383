package cluster

import (
	"bufio"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// raftByte is the first byte, before any TLS, of a connection that talks raft. gRPC begins with 'P' (HTTP/2) or 0x16 (TLS).
const raftByte = 0xA7

// firstByteTimeout bounds how long a connection may say nothing before it is closed.
const firstByteTimeout = 10 * time.Second

// Split shares a listener between raft and gRPC by the first byte of each connection, which the raft side does not see.
// Closing both closes l; when l fails, both fail.
func Split(l net.Listener) (raft, grpc net.Listener) {
	s := &splitter{listener: l, pending: map[net.Conn]struct{}{}}
	s.raft = &splitListener{splitter: s, conns: make(chan net.Conn), closed: make(chan struct{})}
	s.grpc = &splitListener{splitter: s, conns: make(chan net.Conn), closed: make(chan struct{})}
	s.wait.Go(s.accept)
	return s.raft, s.grpc
}

type splitter struct {
	listener   net.Listener
	raft, grpc *splitListener
	wait       sync.WaitGroup

	mu      sync.Mutex
	closes  int // of the two listeners
	pending map[net.Conn]struct{}
	done    bool
}

func (s *splitter) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			var again net.Error
			if errors.As(err, &again) && again.Timeout() {
				continue
			}
			s.raft.fail(err)
			s.grpc.fail(err)
			return
		}
		if !s.hold(conn) {
			conn.Close()
			return
		}
		s.wait.Go(func() { s.sort(conn) })
	}
}

// hold remembers a connection that has not said its first byte, so that closing does not wait for it.
func (s *splitter) hold(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return false
	}
	s.pending[conn] = struct{}{}
	return true
}

// sort reads the first byte and hands the connection over.
func (s *splitter) sort(conn net.Conn) {
	conn.SetReadDeadline(time.Now().Add(firstByteTimeout))
	reader := bufio.NewReaderSize(conn, 16)
	first, err := reader.Peek(1)
	s.mu.Lock()
	delete(s.pending, conn)
	s.mu.Unlock()
	if err != nil {
		conn.Close()
		return
	}
	conn.SetReadDeadline(time.Time{})
	to := s.grpc
	if first[0] == raftByte {
		reader.Discard(1)
		to = s.raft
	}
	select {
	case to.conns <- &sortedConn{Conn: conn, reader: reader}:
	case <-to.closed:
		conn.Close()
	}
}

// close is called as each of the two listeners closes; the second takes the real one along and waits.
func (s *splitter) close() error {
	s.mu.Lock()
	s.closes++
	last := s.closes == 2
	if last {
		s.done = true
		for conn := range s.pending {
			conn.Close()
		}
	}
	s.mu.Unlock()
	if !last {
		return nil
	}
	err := s.listener.Close()
	s.wait.Wait()
	return err
}

// sortedConn is a connection whose first bytes were read already.
type sortedConn struct {
	net.Conn
	reader *bufio.Reader // until it is empty
}

func (c *sortedConn) Read(p []byte) (int, error) {
	if c.reader != nil {
		if c.reader.Buffered() > 0 {
			return c.reader.Read(p[:min(len(p), c.reader.Buffered())])
		}
		c.reader = nil
	}
	return c.Conn.Read(p)
}

type splitListener struct {
	splitter *splitter
	conns    chan net.Conn
	closed   chan struct{}
	once     sync.Once
	mu       sync.Mutex
	err      error
	failed   sync.Once
}

func (l *splitListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.err != nil {
			return nil, l.err
		}
		return nil, net.ErrClosed
	}
}

func (l *splitListener) fail(err error) {
	l.mu.Lock()
	l.err = err
	l.mu.Unlock()
	l.failed.Do(func() { close(l.closed) })
}

func (l *splitListener) Close() error {
	var err error
	l.once.Do(func() {
		l.failed.Do(func() { close(l.closed) })
		err = l.splitter.close()
	})
	return err
}

func (l *splitListener) Addr() net.Addr { return l.splitter.listener.Addr() }

// streamLayer is raft's network: connections that begin with raftByte, then TLS where configured.
type streamLayer struct {
	listener net.Listener
	address  streamAddr // advertised: what raft's configuration says of this server
	tls      *tls.Config
	network  Network

	mu     sync.Mutex
	conns  map[net.Conn]struct{} // accepted: raft's transport leaves idle ones open when it closes
	closed bool
}

type streamAddr string

func (streamAddr) Network() string  { return "tcp" }
func (a streamAddr) String() string { return string(a) }

func newStreamLayer(l net.Listener, address string, c *tls.Config, n Network) *streamLayer {
	return &streamLayer{listener: l, address: streamAddr(address), tls: c, network: n, conns: map[net.Conn]struct{}{}}
}

func (s *streamLayer) Addr() net.Addr { return s.address }

func (s *streamLayer) Accept() (net.Conn, error) {
	conn, err := s.listener.Accept()
	if err != nil {
		return nil, err
	}
	if s.tls != nil {
		conn = tls.Server(conn, s.tls)
	}
	return s.track(conn)
}

func (s *streamLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	conn, err := s.network.dial(string(address), timeout)
	if err != nil {
		return nil, err
	}
	conn.SetWriteDeadline(time.Now().Add(timeout))
	if _, err := conn.Write([]byte{raftByte}); err != nil {
		conn.Close()
		return nil, err
	}
	conn.SetWriteDeadline(time.Time{})
	if s.tls != nil {
		c := s.tls.Clone()
		if c.ServerName == "" {
			c.ServerName, _, _ = net.SplitHostPort(string(address))
		}
		conn = tls.Client(conn, c)
	}
	return s.track(conn)
}

func (s *streamLayer) track(conn net.Conn) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		conn.Close()
		return nil, net.ErrClosed
	}
	t := &trackedConn{Conn: conn, layer: s}
	s.conns[t] = struct{}{}
	return t, nil
}

// Close ends the listener and every connection, so that no goroutine of raft's transport is left reading.
func (s *streamLayer) Close() error {
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		conn.(*trackedConn).Conn.Close()
	}
	clear(s.conns)
	s.mu.Unlock()
	return s.listener.Close()
}

type trackedConn struct {
	net.Conn
	layer *streamLayer
}

func (c *trackedConn) Close() error {
	c.layer.mu.Lock()
	delete(c.layer.conns, c)
	c.layer.mu.Unlock()
	return c.Conn.Close()
}
