package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/musterhpc/muster/cluster"
	"github.com/musterhpc/muster/rpc"
)

// An agent of `muster dev` is told over a pipe which addresses it doesn't reach. Each side of a cut is told of the other, so it
// is enough that an agent cuts what it dials itself. An agent that wasn't started by `muster dev` has no pipe, and no cuts.

// These are the pipe's ends in the agent.
const (
	cutOrders  = 3 // lines: cutOrder in JSON
	cutAnswers = 4 // lines: the number of the order that is in force
)

// cutOrder replaces the one before it.
type cutOrder struct {
	Number int      `json:"number"`
	Cut    []string `json:"cut"` // addresses that are not reached
}

// silenceBreaks is how long a cut connection is silent before it breaks: what the kernel's probes take on a real network.
const silenceBreaks = 3 * time.Second

var errCutOff = &net.OpError{Op: "read", Net: "tcp", Err: fmt.Errorf("%w (cut by muster dev partition)", syscall.ETIMEDOUT)}

// cuts is what an agent doesn't reach.
type cuts struct {
	mu    sync.Mutex
	since map[string]time.Time // by address
	conns map[*cutConn]struct{}
}

// followCuts obeys the orders that come over the pipe. It returns once the first is in force, and goes on for as long as the
// process lives.
func followCuts() (*cuts, error) {
	for _, fd := range []int{cutOrders, cutAnswers} {
		syscall.CloseOnExec(fd) // supervisors and tasks get no part of it
	}
	orders, answers := os.NewFile(cutOrders, "orders"), os.NewFile(cutAnswers, "answers")
	c := &cuts{since: map[string]time.Time{}, conns: map[*cutConn]struct{}{}}
	lines := bufio.NewReader(orders)
	obey := func() error {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		var order cutOrder
		if err := json.Unmarshal(line, &order); err != nil {
			return err
		}
		c.set(order.Cut)
		_, err = fmt.Fprintln(answers, order.Number)
		return err
	}
	if err := obey(); err != nil {
		return nil, fmt.Errorf("--dev is for the children of muster dev only: %w", err)
	}
	go func() {
		for obey() == nil {
		}
	}()
	return c, nil
}

// set replaces what is cut. Connections to what is cut now, and still is when silenceBreaks is over, break then.
func (c *cuts) set(addresses []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.since
	c.since = map[string]time.Time{}
	now := time.Now()
	for _, address := range addresses {
		c.since[address] = now
		if at, was := before[address]; was {
			c.since[address] = at
		}
	}
	time.AfterFunc(silenceBreaks, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for conn := range c.conns {
			if at, is := c.since[conn.address]; is && time.Since(at) >= silenceBreaks {
				conn.breakOff()
			}
		}
	})
}

// cut says whether an address is out of reach, and has been for so long that connections break.
func (c *cuts) cut(address string) (cut, breaks bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, cut := c.since[address]
	return cut, cut && time.Since(at) >= silenceBreaks
}

func (c *cuts) loses(address string) bool {
	cut, _ := c.cut(address)
	return cut
}

// network is the agent's network with its cuts; nil cuts: as it is.
func (c *cuts) network() cluster.Network {
	if c == nil {
		return cluster.Network{}
	}
	return cluster.Network{Dial: c.dial, Loses: c.loses}
}

// dialer is how rpc connects; nil cuts: as it always does.
func (c *cuts) dialer() func(context.Context, string) (net.Conn, error) {
	if c == nil {
		return nil
	}
	return c.dial
}

// dial connects as rpc does. Nobody answers from where it doesn't reach, until it is healed or the caller gives up.
func (c *cuts) dial(ctx context.Context, address string) (net.Conn, error) {
	if strings.HasPrefix(address, "unix:") {
		return rpc.DialPlain(ctx, address)
	}
	tick := time.NewTicker(cutTick)
	defer tick.Stop()
	for began := time.Now(); c.loses(address); {
		if time.Since(began) > silenceBreaks {
			return nil, errCutOff
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
	conn, err := rpc.DialPlain(ctx, address)
	if err != nil {
		return nil, err
	}
	linked := &cutConn{Conn: conn, cuts: c, address: address}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns[linked] = struct{}{}
	return linked, nil
}

// cutTick is how often what is held back looks whether it may go on.
const cutTick = 10 * time.Millisecond

// cutConn is a connection that nothing passes while its address is cut. Deadlines hold for what is held back, too.
type cutConn struct {
	net.Conn
	cuts    *cuts
	address string

	mu       sync.Mutex
	deadline [2]time.Time // of reads, of writes
	closed   bool
	broken   bool
}

const (
	reads = iota
	writes
)

func (c *cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if held := c.pass(reads); held != nil {
		if n > 0 {
			c.breakOff() // what was read is lost: nothing may come after it
		}
		return 0, held
	}
	return n, err
}

func (c *cutConn) Write(p []byte) (int, error) {
	if held := c.pass(writes); held != nil {
		return 0, held
	}
	return c.Conn.Write(p)
}

// pass waits until the address is not cut.
func (c *cutConn) pass(way int) error {
	if !c.cuts.loses(c.address) {
		return c.state(way, false)
	}
	tick := time.NewTicker(cutTick)
	defer tick.Stop()
	for {
		if err := c.state(way, true); err != nil {
			return err
		}
		if !c.cuts.loses(c.address) {
			return nil
		}
		<-tick.C
	}
}

// state gives the error of a connection that can't go on.
func (c *cutConn) state(way int, waits bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch at := c.deadline[way]; {
	case c.broken:
		return errCutOff
	case c.closed && waits:
		return net.ErrClosed
	case waits && !at.IsZero() && !time.Now().Before(at):
		return os.ErrDeadlineExceeded
	}
	return nil
}

// breakOff ends the connection as one ends whose other end is gone.
func (c *cutConn) breakOff() {
	c.mu.Lock()
	c.broken = true
	c.mu.Unlock()
	_ = c.Conn.Close() // ends a read that waits; its reader is told why by state
}

func (c *cutConn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cuts.mu.Lock()
	delete(c.cuts.conns, c)
	c.cuts.mu.Unlock()
	if err := c.Conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func (c *cutConn) setDeadline(t time.Time, ways ...int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, way := range ways {
		c.deadline[way] = t
	}
}

func (c *cutConn) SetDeadline(t time.Time) error {
	c.setDeadline(t, reads, writes)
	return c.Conn.SetDeadline(t)
}

func (c *cutConn) SetReadDeadline(t time.Time) error {
	c.setDeadline(t, reads)
	return c.Conn.SetReadDeadline(t)
}

func (c *cutConn) SetWriteDeadline(t time.Time) error {
	c.setDeadline(t, writes)
	return c.Conn.SetWriteDeadline(t)
}

var _ io.ReadWriteCloser = (*cutConn)(nil)
