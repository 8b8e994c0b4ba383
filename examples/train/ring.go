package main

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"time"
)

// ring is a rank's two neighbours: it sends to the next and hears from the one before.
type ring struct {
	rank, ranks int
	next, prev  net.Conn
	send        *gob.Encoder
	flush       *bufio.Writer
	receive     *gob.Decoder
}

// patience is how long ranks wait for each other. All of a gang's ranks start together; a rank whose peer died ends with an
// error, and muster starts the gang again.
const patience = 30 * time.Second

// join makes the ring: every rank tells rank 0, at the port that muster reserved for the job, where it listens; rank 0 tells all;
// each connects to the next.
func join(p place) (*ring, error) {
	r := &ring{rank: p.rank, ranks: p.ranks}
	if p.ranks == 1 {
		return r, nil
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(p.ip, "0"))
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	addresses, err := meet(p, listener.Addr().String())
	if err != nil {
		return nil, err
	}
	dialled := make(chan error, 1)
	go func() {
		var err error
		r.next, err = net.DialTimeout("tcp", addresses[(p.rank+1)%p.ranks], patience)
		dialled <- err
	}()
	_ = listener.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	prev, err := listener.Accept()
	if err := errors.Join(err, <-dialled); err != nil {
		return nil, fmt.Errorf("the ring does not close: %w", err)
	}
	r.prev = prev
	r.flush = bufio.NewWriterSize(r.next, 64<<10)
	r.send, r.receive = gob.NewEncoder(r.flush), gob.NewDecoder(bufio.NewReaderSize(prev, 64<<10))
	return r, nil
}

// hello is what a rank tells rank 0.
type hello struct {
	Rank    int
	Address string
}

func meet(p place, own string) ([]string, error) {
	if p.rank != 0 {
		return introduce(p, own)
	}
	listener, err := net.Listen("tcp", p.master)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	_ = listener.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	addresses := make([]string, p.ranks)
	addresses[0] = own
	var others []net.Conn
	for range p.ranks - 1 {
		conn, err := listener.Accept()
		if err != nil {
			return nil, fmt.Errorf("%d of %d ranks came: %w", len(others)+1, p.ranks, err)
		}
		defer conn.Close()
		var h hello
		if err := gob.NewDecoder(conn).Decode(&h); err != nil {
			return nil, err
		}
		if h.Rank < 1 || h.Rank >= p.ranks {
			return nil, fmt.Errorf("a stranger came: rank %d", h.Rank)
		}
		addresses[h.Rank] = h.Address
		others = append(others, conn)
	}
	for _, conn := range others {
		if err := gob.NewEncoder(conn).Encode(addresses); err != nil {
			return nil, err
		}
	}
	return addresses, nil
}

func introduce(p place, own string) (addresses []string, err error) {
	var conn net.Conn
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) { // rank 0 may not listen yet
		if conn, err = net.DialTimeout("tcp", p.master, patience); err == nil {
			break
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("rank 0 does not listen: %w", err)
		}
	}
	defer conn.Close()
	if err := gob.NewEncoder(conn).Encode(hello{p.rank, own}); err != nil {
		return nil, err
	}
	return addresses, gob.NewDecoder(conn).Decode(&addresses)
}

// pass sends one part to the next rank while it hears one from the rank before.
func (r *ring) pass(part []float64) (heard []float64, err error) {
	sent := make(chan error, 1)
	go func() {
		err := r.send.Encode(part)
		if err == nil {
			err = r.flush.Flush()
		}
		sent <- err
	}()
	err = r.receive.Decode(&heard)
	return heard, errors.Join(err, <-sent)
}

// add makes values the sum of all ranks' values, to the last bit the same everywhere: a ring all-reduce. In ranks-1 rounds
// each part of the vector goes once round the ring and is added up, in ranks-1 more its sum goes round. (Patarasuk and Yuan,
// Bandwidth Optimal All-reduce Algorithms, 2009.)
func (r *ring) add(values []float64) error {
	part := func(i int) []float64 {
		i = (i%r.ranks + r.ranks) % r.ranks
		return values[len(values)*i/r.ranks : len(values)*(i+1)/r.ranks]
	}
	for round := range r.ranks - 1 {
		heard, err := r.pass(part(r.rank - round))
		if err != nil {
			return err
		}
		own := part(r.rank - round - 1)
		if len(heard) != len(own) {
			return fmt.Errorf("rank %d heard %d values, not %d", r.rank, len(heard), len(own))
		}
		for i := range own {
			own[i] += heard[i]
		}
	}
	for round := range r.ranks - 1 {
		heard, err := r.pass(part(r.rank - round + 1))
		if err != nil {
			return err
		}
		copy(part(r.rank-round), heard)
	}
	return nil
}

// broadcast gives all ranks rank 0's checkpoint.
func (r *ring) broadcast(c *checkpoint) error {
	if r.ranks == 1 {
		return nil
	}
	if r.rank > 0 {
		if err := r.receive.Decode(c); err != nil {
			return err
		}
	}
	if r.rank == r.ranks-1 {
		return nil
	}
	if err := r.send.Encode(c); err != nil {
		return err
	}
	return r.flush.Flush()
}

func (r *ring) close() {
	if r.ranks > 1 {
		r.next.Close()
		r.prev.Close()
	}
}
