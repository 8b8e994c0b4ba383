package cluster

import (
	"testing"

	"github.com/hashicorp/raft"
)

func TestFoundersAreTheLowestThatBelongToNoCluster(t *testing.T) {
	fresh := func(ids ...string) (out []member) {
		for _, id := range ids {
			out = append(out, member{ID: id, New: true})
		}
		return out
	}
	if set, _ := founders(fresh("a", "b"), 3); set != nil {
		t.Error("two servers founded a cluster of three")
	}
	three, agreed := founders(fresh("a", "b", "c"), 3)
	four, other := founders(fresh("a", "b", "c", "d"), 3)
	if len(three) != 3 || len(four) != 3 || agreed != other {
		t.Errorf("a fourth server changed the founders: %v (%s), %v (%s)", three, agreed, four, other)
	}
	if _, lower := founders(fresh("0", "a", "b", "c"), 3); lower == agreed {
		t.Error("another set of founders has the same name")
	}
	if set, _ := founders(append(fresh("a", "b", "c"), member{ID: "d"}), 3); set != nil {
		t.Error("servers founded a second cluster beside one that exists")
	}
}

func TestMembershipChangesOneStepAtATime(t *testing.T) {
	voter := func(id, at string) raft.Server {
		return raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(id), Address: raft.ServerAddress(at)}
	}
	nonvoter := raft.Server{Suffrage: raft.Nonvoter, ID: "c", Address: "c:1"}
	two := []raft.Server{voter("a", "a:1"), voter("b", "b:1")}
	seen := []member{{ID: "a", RPC: "a:1"}, {ID: "b", RPC: "b:1"}, {ID: "c", RPC: "c:1"}}
	yes := func(raft.ServerID) bool { return true }
	no := func(raft.ServerID) bool { return false }

	if c := nextChange(two, seen, 3, yes); c == nil || c.server != nonvoter {
		t.Errorf("a new server: got %v, want it to join without a vote", c)
	}
	three := append(two[:2:2], nonvoter)
	if c := nextChange(three, seen, 3, no); c != nil {
		t.Errorf("a server that lags was promoted: %v", c)
	}
	if c := nextChange(three, seen, 3, yes); c == nil || c.server != voter("c", "c:1") {
		t.Errorf("a server that caught up: got %v, want it to vote", c)
	}
	if c := nextChange(three, seen, 2, yes); c != nil {
		t.Errorf("more voters than asked for: %v", c)
	}
	if c := nextChange(two, seen[:1], 3, yes); c != nil {
		t.Errorf("a dead server was touched: %v", c)
	}
	moved := []member{seen[0], {ID: "b", RPC: "b:2"}}
	if c := nextChange(two, moved, 3, yes); c == nil || c.server != voter("b", "b:2") {
		t.Errorf("an address that moved: got %v", c)
	}
	impostor := []member{seen[0], seen[1], {ID: "d", RPC: "b:1"}}
	if c := nextChange(two, impostor, 3, yes); c != nil {
		t.Errorf("two live servers with one address: got %v, want nothing", c)
	}
}
