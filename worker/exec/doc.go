// Package exec is how a process is started, isolated, watched, stopped and re-adopted: the supervisor process, its protocol
// with the agent, cgroups, namespaces, and the segments that a task's output goes to.
package exec
