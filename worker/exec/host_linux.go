package exec

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// abilities is what a supervisor found that it can use.
type abilities struct {
	groups   *cgroups // nil: none
	isolated bool
	whyGroup error
	whySpace error
}

var errPlain = errors.New("the configuration says so")

// Host tries what this host allows: it makes and removes a cgroup, and namespaces with a process in them.
func Host(c SupervisorConfig) HostAbilities {
	c, err := c.filled()
	if err != nil {
		return HostAbilities{Fencing: "weak: " + err.Error()}
	}
	a := probe(c)
	h := HostAbilities{PidNamespace: a.isolated, Fencing: "strong"}
	if a.groups != nil {
		h.Cgroup = fmt.Sprintf("v%d", a.groups.version)
		h.Limits = a.groups.memory != ""
	}
	var lacks []string
	if !a.isolated {
		lacks = append(lacks, "no pid namespaces: "+a.whySpace.Error())
	}
	if a.groups == nil {
		lacks = append(lacks, "no cgroups, so that cores and memory of tasks are not limited: "+a.whyGroup.Error())
	}
	if len(lacks) > 0 {
		h.Fencing = "weak: " + strings.Join(lacks, "; ")
	}
	return h
}

func probe(c SupervisorConfig) abilities {
	self := ownIdentity()
	a := abilities{}
	if c.Plain {
		a.whyGroup = errPlain
		a.whySpace = errPlain
		return a
	}
	a.groups, a.whyGroup = tryCgroups(c, self)
	// The agent has other children, which are not ours to wait for.
	a.whySpace = trySpace(newChildren(true), c.mark(self))
	a.isolated = a.whySpace == nil
	return a
}

// trySpace makes namespaces and ends them.
func trySpace(kids *children, mark string) error {
	s, err := newSpace(kids, true, mark)
	if err != nil {
		return err
	}
	s.end()
	<-s.init.exited
	s.close()
	return nil
}

// mark is the environment variable that says whose a process is.
func (c SupervisorConfig) mark(self identity) string {
	return markSupervisor + "=" + c.Instance + "/" + self.String()
}

// tryCgroups finds the cgroups, and makes and removes a group as a supervisor would, without moving this process.
func tryCgroups(c SupervisorConfig, self identity) (*cgroups, error) {
	g, err := findCgroups(c, self)
	if err != nil {
		return nil, err
	}
	own := g.own
	g.own = filepath.Join(g.instance, "probe")
	if g.version == 2 {
		err = g.openUnified()
	} else {
		for _, mount := range g.mounts() {
			if err = os.MkdirAll(filepath.Join(mount, g.own), 0o755); err != nil {
				break
			}
		}
	}
	for _, mount := range g.mounts() {
		_ = os.Remove(filepath.Join(mount, g.own))
	}
	g.own = own
	if err != nil {
		return nil, err
	}
	return g, nil
}
