package duty

import (
	"cmp"
	"slices"
)

// Contact is the evidence for quorum contact: the latest moment at which a majority of the voters is known to have taken
// this server for the leader of its term. Evidence counts from when it was SENT: a follower that accepts an AppendEntries had
// promised, at some moment after it was sent, to follow no older term. So whoever waits until the value is later than a
// moment knows that no other leader had been elected by then, however late the answers come in. (Raft's own VerifyLeader
// counts answers when they arrive, whenever the question was sent.)
type Contact struct {
	term  uint64 // of the leadership that the evidence is for; 0 = not leading
	peers map[string]Heard
}

// Heard is what is known of a peer.
type Heard struct {
	Sent  Boot   // when the last AppendEntries that the peer accepted in this term was sent
	Match uint64 // the highest index that it is known to hold
}

// NewContact has no evidence, and leads in no term.
func NewContact() *Contact { return &Contact{peers: map[string]Heard{}} }

// Accepted records that peer accepted, in term, an AppendEntries sent at sent, after which it holds everything up to match. False:
// it is of an older term and counts for nothing.
func (c *Contact) Accepted(peer string, term uint64, sent Boot, match uint64) bool {
	if term < c.term {
		return false
	}
	c.Lead(term) // raft sends before its leadership is announced, so evidence may come first
	p := c.peers[peer]
	p.Sent, p.Match = max(p.Sent, sent), max(p.Match, match)
	c.peers[peer] = p
	return true
}

// Lead begins the leadership of term: the evidence of other terms is forgotten.
func (c *Contact) Lead(term uint64) {
	if c.term != term {
		c.term = term
		clear(c.peers)
	}
}

// Value gives quorum contact in term, as of now; 0 when there is none, or another term has begun. self is one of the voters,
// whose evidence is always new, so alone a leader is in contact always.
func (c *Contact) Value(term uint64, self string, now Boot, voters []string) Boot {
	if c.term != term {
		return 0
	}
	reached := make([]Boot, 0, len(voters))
	for _, id := range voters {
		if id == self {
			reached = append(reached, now)
		} else if p, ok := c.peers[id]; ok {
			reached = append(reached, p.Sent)
		}
	}
	need := len(voters)/2 + 1
	if len(voters) == 0 || len(reached) < need {
		return 0
	}
	slices.SortFunc(reached, func(a, b Boot) int { return cmp.Compare(b, a) })
	return reached[need-1]
}

// Peer gives what is known of a peer in term.
func (c *Contact) Peer(term uint64, id string) (Heard, bool) {
	p, ok := c.peers[id]
	return p, ok && c.term == term
}
