//go:build !chaos || !linux

package main

import "github.com/musterhpc/muster/cluster"

// injectFaults does nothing: faults are for the binary that the chaos suite builds.
func injectFaults(*cluster.Config) {}
