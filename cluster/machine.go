package cluster

import (
	"errors"

	"github.com/musterhpc/muster/fsm"
)

// newMachine makes the state machine that raft drives; what it publishes goes through the hub.
func (s *Server) newMachine() *fsm.FSM {
	m := fsm.New(s.publish, func(message string) { s.config.Fatal(errors.New(message)) })
	s.publish(m.Published())
	return m
}

func (s *Server) publish(p *fsm.Published) {
	s.hub.publish(p.Snapshot, p.Index, p.Changed, p.Everything)
}
