package harness

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
)

// Link is what a worker's traffic with the servers goes through, or what a server hears of raft. While it is cut nothing
// passes, and nobody is told.
type Link struct {
	mu    sync.Mutex
	open  chan struct{} // closed while the link is whole
	only  []string      // addresses that can be reached; nil: all
	conns map[*linkedConn]bool
	dials map[string]int
}

func newLink() *Link {
	l := &Link{open: make(chan struct{}), conns: map[*linkedConn]bool{}, dials: map[string]int{}}
	close(l.open)
	return l
}

// Cut holds everything back.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = make(chan struct{})
}

// Heal lets everything through, what was held back first.
func (l *Link) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open:
	default:
		close(l.open)
	}
}

// Only breaks the connections to all other addresses, and refuses new ones; without any, all can be reached again.
func (l *Link) Only(addresses ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.only = addresses
	for conn := range l.conns {
		if !l.reaches(conn.address) {
			conn.Conn.Close() // its reader and its writer see that it is closed
		}
	}
}

func (l *Link) reaches(address string) bool {
	return len(l.only) == 0 || slices.Contains(l.only, address)
}

// Dials says how often an address was connected to.
func (l *Link) Dials(address string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dials[address]
}

func (l *Link) whole() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

func (l *Link) dial(ctx context.Context, address string) (net.Conn, error) {
	select {
	case <-l.whole():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return l.carry(conn, address)
}

// carry makes conn, with address at its other end, one of the link's.
func (l *Link) carry(conn net.Conn, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.reaches(address) {
		conn.Close()
		return nil, errors.New(address + " can't be reached")
	}
	l.dials[address]++
	linked := &linkedConn{Conn: conn, link: l, address: address, closed: make(chan struct{})}
	l.conns[linked] = true
	return linked, nil
}

// linkedListener puts what it accepts behind a link.
type linkedListener struct {
	net.Listener
	link *Link
}

func (l *linkedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.link.carry(conn, conn.RemoteAddr().String())
}

type linkedConn struct {
	net.Conn
	link    *Link
	address string
	once    sync.Once
	closed  chan struct{}
}

func (c *linkedConn) pass() {
	select {
	case <-c.link.whole():
	case <-c.closed:
	}
}

func (c *linkedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.pass()
	return n, err
}

func (c *linkedConn) Write(p []byte) (int, error) {
	c.pass()
	return c.Conn.Write(p)
}

func (c *linkedConn) Close() error {
	c.once.Do(func() {
		c.link.mu.Lock()
		delete(c.link.conns, c)
		c.link.mu.Unlock()
		close(c.closed)
	})
	return c.Conn.Close()
}
