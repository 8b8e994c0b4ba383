package rpc

import (
	"os/user"
	"slices"
	"sync"
	"time"
)

// groupsKept is how long the groups of a user are believed: a look at a directory service costs a round trip.
const groupsKept = time.Minute

// groupBook knows in which groups users of this machine are. Its size is bounded by the users that exist.
type groupBook struct {
	look func(user string) []string

	mu    sync.Mutex
	known map[string]groupEntry
}

type groupEntry struct {
	groups []string
	at     time.Time
}

func newGroupBook(look func(string) []string) *groupBook {
	return &groupBook{look: look, known: map[string]groupEntry{}}
}

// of gives the names of a user's groups, sorted.
func (b *groupBook) of(name string) []string {
	b.mu.Lock()
	e, ok := b.known[name]
	b.mu.Unlock()
	if ok && time.Since(e.at) < groupsKept {
		return e.groups
	}
	groups := b.look(name)
	b.mu.Lock()
	b.known[name] = groupEntry{groups, time.Now()}
	b.mu.Unlock()
	return groups
}

// groupsHere asks this machine; a user that it does not know is in no group.
func groupsHere(name string) []string {
	u, err := user.Lookup(name)
	if err != nil {
		return nil
	}
	ids, err := u.GroupIds()
	if err != nil {
		return nil
	}
	var groups []string
	for _, id := range ids {
		if g, err := user.LookupGroupId(id); err == nil {
			groups = append(groups, g.Name)
		}
	}
	slices.Sort(groups)
	return groups
}
