package rpc

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerUID gives the user that the process at the other end of a unix socket had when it connected (SO_PEERCRED): the
// kernel's word, not the caller's.
func peerUID(conn *net.UnixConn) (uint32, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var optErr error
	if err := raw.Control(func(fd uintptr) {
		cred, optErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if optErr != nil {
		return 0, optErr
	}
	return cred.Uid, nil
}
