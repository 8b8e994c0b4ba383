package main

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// A connection to what is cut falls silent, keeps its deadlines, goes on when it is healed soon, and breaks when it isn't.
func TestACutConnectionIsSilentThenBreaks(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() { // an echo, until the listener and its connection are closed
		if conn, err := listener.Accept(); err == nil {
			_, _ = io.Copy(conn, conn)
			conn.Close()
		}
	}()
	address := listener.Addr().String()
	c := &cuts{since: map[string]time.Time{}, conns: map[*cutConn]struct{}{}}
	conn, err := c.dial(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	echo := func() error {
		if _, err := conn.Write([]byte("x")); err != nil {
			return err
		}
		_, err := conn.Read(make([]byte, 1))
		return err
	}
	if err := echo(); err != nil {
		t.Fatal(err)
	}

	c.set([]string{address})
	_ = conn.SetDeadline(time.Now().Add(50 * time.Millisecond))
	if err := echo(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("while it is cut, with a deadline: %v", err)
	}
	_ = conn.SetDeadline(time.Time{})
	waits := make(chan error, 1)
	go func() { waits <- echo() }()
	select {
	case err := <-waits:
		t.Errorf("while it is cut: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	c.set(nil)
	if err := <-waits; err != nil {
		t.Errorf("healed soon, it does not go on: %v", err)
	}

	began := time.Now()
	c.set([]string{address})
	if err := echo(); !errors.Is(err, syscall.ETIMEDOUT) || time.Since(began) < silenceBreaks {
		t.Errorf("cut for long, it ended after %v with %v", time.Since(began), err)
	}
	if _, err := c.dial(t.Context(), address); !errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("who can't be reached was reached: %v", err)
	}
}
