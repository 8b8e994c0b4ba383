// Package chaos is a cluster of real processes in a network of its own, faults that are done to it, clients and tasks that
// write down all they see, and a test that runs them together. Build tag chaos; see `make chaos`.
package chaos
