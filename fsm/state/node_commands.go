package state

import (
	"slices"
	"strings"

	"github.com/musterhpc/muster"
)

// namesShown bounds how many node names an error lists.
const namesShown = 10

func (s *State) checkNodes(names []string) *muster.Error {
	for _, name := range names {
		if s.t.presentNode(name) == nil {
			return s.unknownNode(name)
		}
	}
	return nil
}

func (s *State) unknownNode(name string) *muster.Error {
	err := muster.Errorf(muster.KindNotFound, "no node %q", name)
	var known []string
	for k := range s.t.nodeNames.all() {
		if s.t.nodes.get(k.node).Removed {
			continue
		}
		known = append(known, k.name)
		if len(known) > namesShown {
			return err.WithHint("muster node ls lists them")
		}
	}
	if len(known) == 0 {
		return err.WithHint("No node has registered yet")
	}
	return err.WithHint("There are %s", strings.Join(known, ", "))
}

func (s *State) checkNodeNumber(id muster.NodeID) *muster.Error {
	if s.t.nodes.get(id) == nil {
		return muster.Errorf(muster.KindNotFound, "no node has the number %d", id)
	}
	return nil
}

func (c *DrainNodes) check(s *State) *muster.Error { return s.checkNodes(c.Nodes) }

func (c *DrainNodes) apply(s *State) Result {
	for _, name := range c.Nodes {
		n := s.node(s.t.nodeNamed(name).ID)
		drain := muster.Drain{On: true, Reason: c.Reason, By: c.User, Since: s.now()}
		if n.Drain.On {
			drain.Since = n.Drain.Since
		}
		if c.HasDeadline {
			drain.Deadline = max(s.now().Add(max(c.Deadline, 0)), 1)
		}
		n.Drain = drain
		s.noteNode(EventNodeDraining, n, c.User, c.Reason)
		if c.HasDeadline && c.Deadline <= 0 {
			s.stopForDrain(n)
		}
	}
	return Result{}
}

// stopForDrain asks every job with a rank on a node to save itself and end: whole gangs.
func (s *State) stopForDrain(n *muster.Node) {
	reason := n.Name + " is drained"
	if n.Drain.Reason != "" {
		reason += ": " + n.Drain.Reason
	}
	for _, id := range s.t.liveOn(n.ID) {
		s.stop(s.job(s.t.allocs.get(id).Job), muster.Stop{Mode: muster.StopSave, Class: muster.ClassDrain, Reason: reason, At: s.now()})
	}
}

func (c *UndrainNodes) check(s *State) *muster.Error { return s.checkNodes(c.Nodes) }

func (c *UndrainNodes) apply(s *State) Result {
	var result Result
	for _, name := range c.Nodes {
		n := s.t.nodeNamed(name)
		if !n.Drain.On {
			result.Notes = append(result.Notes, name+" was not draining")
			continue
		}
		s.node(n.ID).Drain = muster.Drain{}
		s.noteNode(EventNodeUndrained, n, c.User, "")
	}
	return result
}

func (c *FenceNode) check(s *State) *muster.Error { return s.checkNodes([]string{c.Node}) }

func (c *FenceNode) apply(s *State) Result {
	n := s.node(s.t.nodeNamed(c.Node).ID)
	reason := by("fenced", c.User)
	s.endAllOn(n, reason)
	n.Lost, n.Reason = true, reason
	s.noteNode(EventNodeLost, n, c.User, reason)
	return Result{}
}

// endAllOn ends what is live on a node, which is proven to run nothing of it.
func (s *State) endAllOn(n *muster.Node, reason string) {
	for _, id := range s.t.liveOn(n.ID) {
		s.end(id, ending{class: muster.ClassNode, message: reason})
	}
}

func (c *RemoveNodes) check(s *State) *muster.Error {
	if err := s.checkNodes(c.Nodes); err != nil {
		return err
	}
	for _, name := range c.Nodes {
		switch n := s.t.nodeNamed(name); {
		case n.Allocs > 0:
			return muster.Errorf(muster.KindConflict, "%s holds %s", name, allocations(n.Allocs)).
				WithHint("They end with their leases, or now, if its machine is off: muster node fence %s", name)
		case !n.Lost:
			return muster.Errorf(muster.KindConflict, "%s is alive: only a node that is lost can be removed", name).
				WithHint("Stop its agent first; if its machine is off: muster node fence %s", name)
		}
	}
	return nil
}

func (c *RemoveNodes) apply(s *State) Result {
	for _, name := range c.Nodes {
		n := s.node(s.t.nodeNamed(name).ID)
		n.Removed = true
		// What was said of the machine does not hold for another one of its name.
		n.Drain, n.SetLabels = muster.Drain{}, nil
		s.noteNode(EventNodeRemoved, n, c.User, "")
	}
	clear(s.feasible)
	return Result{}
}

func (c *LabelNode) check(s *State) *muster.Error {
	if err := s.checkNodes([]string{c.Node}); err != nil {
		return err
	}
	if len(c.Set) == 0 && len(c.Remove) == 0 {
		return muster.Errorf(muster.KindUsage, "no label is named")
	}
	n := s.t.nodeNamed(c.Node)
	for i := range c.Set {
		if err := muster.CheckLabel(c.Set[i]); err != nil {
			return err
		}
	}
	for _, key := range c.Remove {
		if slices.ContainsFunc(n.SetLabels, func(l muster.SetLabel) bool { return l.Key == key }) {
			continue
		}
		if own, ok := n.Label(key); ok {
			return muster.Errorf(muster.KindConflict, "the label %s = %s comes from the agent's file on %s", key, own, n.Name).
				WithHint("Change it there, or set another value over it: muster node label %s %s=…", n.Name, key)
		}
		return muster.Errorf(muster.KindNotFound, "%s has no label %q", n.Name, key)
	}
	if len(n.SetLabels)+len(c.Set) > muster.MaxLabels {
		return muster.Errorf(muster.KindInvalid, "more than %d labels on %s", muster.MaxLabels, n.Name)
	}
	return nil
}

func (c *LabelNode) apply(s *State) Result {
	n := s.node(s.t.nodeNamed(c.Node).ID)
	own := n.OwnLabels()
	set := slices.Clone(n.SetLabels)
	for _, key := range c.Remove {
		set = slices.DeleteFunc(set, func(l muster.SetLabel) bool { return l.Key == key })
	}
	for _, l := range c.Set {
		set = slices.DeleteFunc(set, func(o muster.SetLabel) bool { return o.Key == l.Key })
		set = append(set, muster.SetLabel{Key: l.Key, Value: l.Value})
	}
	n.LabelOver(own, set)
	var said []string
	for _, l := range c.Set {
		said = append(said, l.Key+"="+l.Value)
	}
	for _, key := range c.Remove {
		said = append(said, key+"-")
	}
	s.noteNode(EventNodeLabelled, n, c.User, strings.Join(said, " "))
	clear(s.feasible)
	return Result{}
}

func (c *EndLeases) decidedIn() uint64 { return c.Term }

func (c *EndLeases) check(s *State) *muster.Error {
	if err := s.checkNodeNumber(c.Node); err != nil {
		return err
	}
	if n := s.t.nodes.get(c.Node); n.Session != c.Session {
		return muster.Errorf(muster.KindConflict, "the worker on %s has begun another session since", n.Name)
	}
	return nil
}

func (c *EndLeases) apply(s *State) Result {
	for _, id := range c.Allocs {
		if a := s.t.allocs.get(id); a != nil && a.Node == c.Node && a.Phase != muster.AllocEnded {
			s.end(id, ending{class: muster.ClassNode, message: c.Reason})
		}
	}
	if c.Lost {
		n := s.node(c.Node)
		n.Lost, n.Reason = true, c.Reason
		s.noteNode(EventNodeLost, n, "", c.Reason)
	}
	return Result{}
}

func (c *DrainDue) decidedIn() uint64 { return c.Term }

func (c *DrainDue) check(s *State) *muster.Error {
	if err := s.checkNodeNumber(c.Node); err != nil {
		return err
	}
	if n := s.t.nodes.get(c.Node); !n.Drain.On || n.Drain.Deadline == 0 {
		return muster.Errorf(muster.KindConflict, "%s is not draining towards a deadline", n.Name)
	}
	return nil
}

func (c *DrainDue) apply(s *State) Result {
	s.stopForDrain(s.node(c.Node))
	return Result{}
}

func (c *ReportAllocs) check(s *State) *muster.Error { return s.checkNodeNumber(c.Node) }

func (c *ReportAllocs) apply(s *State) Result {
	for i := range c.Allocs {
		s.report(c.Node, &c.Allocs[i])
	}
	return Result{}
}

// report applies what a worker says of one allocation; what is late, repeated or not its own changes nothing.
func (s *State) report(node muster.NodeID, r *muster.AllocReport) {
	a := s.t.allocs.get(r.ID)
	if a == nil || a.Node != node || r.Phase <= a.Phase || r.Phase > muster.AllocEnded {
		return
	}
	if r.Phase < muster.AllocEnded {
		s.advance(r.ID, r.Phase, r.Running)
		return
	}
	s.end(r.ID, ending{class: r.Class, exitCode: r.ExitCode, signal: r.Signal, message: r.Message,
		running: r.Running, ended: r.Ended, peak: r.Peak})
}
