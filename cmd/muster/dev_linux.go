package main

import "syscall"

// childAttributes ties a child's life to ours: kill -9 of `muster dev` leaves no servers behind.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
