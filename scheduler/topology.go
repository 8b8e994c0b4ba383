package scheduler

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// A gang that would like one domain (a leaf switch, a rack) gets it or waits, until its patience is over: counted from when it
// first could have started on several since it last ran. From submission it would be over in any loaded queue before the gang's
// turn comes, and say nothing. When it first could have started is in the leader's memory only: a new leader counts anew.

// wishes says whether a gang would like a domain.
func (s *shape) wishes() bool {
	return slices.ContainsFunc(s.requests, func(r request) bool { return r.wishes() })
}

// preferred is the label of the domain that the first of its groups with a wish would like.
func (s *shape) preferred() string {
	at := slices.IndexFunc(s.requests, func(r request) bool { return r.wishes() })
	return s.requests[at].prefer
}

func (r *request) wishes() bool { return r.prefer != "" && r.count > 1 }

// mayBeWide says whether a job's gang may spread at a time: its patience is over, or no domain could ever hold it.
func (a *agenda) mayBeWide(s *shape, job muster.JobID, at muster.Time) bool {
	if !s.wishes() || !s.narrow {
		return true
	}
	since, known := a.v.couldSince[job]
	return known && at >= since.Add(s.patience)
}

// couldSpread notes that a gang could start now on several domains, and when its patience will be over.
func (a *agenda) couldSpread(s *shape, job muster.JobID) {
	since, known := a.v.couldSince[job]
	if !known {
		since = a.now
		a.v.couldSince[job] = since
	}
	a.wakeAt(since.Add(s.patience))
}

// wait tries a gang that found no single domain on several. waits: it could, but has patience still.
func (a *agenda) wait(s *shape, job *muster.Job) (placed []state.RankPlacement, waits, ok bool) {
	if !s.wishes() {
		return nil, false, false
	}
	a.runnable(s)
	mark := len(a.undo)
	placed, ok = a.gang(s, job, true)
	if !ok {
		return nil, false, false
	}
	a.couldSpread(s, job.ID)
	if a.mayBeWide(s, job.ID, a.now) {
		return placed, false, true
	}
	a.rollback(mark)
	return nil, true, false
}

// inOne finds nodes of one preferred domain for all ranks, or, where the gang may spread, of the fewest.
func (p *pass) inOne(r *request, l *lane, sc *scope) (cost, bool) {
	if r.prefer != "node" {
		mark := len(p.picks)
		if c, ok := p.inDomain(r, r.prefer, l, sc); ok && p.staysWithin(r, p.picks[mark:]) {
			return c, true
		}
		p.picks = p.picks[:mark]
	}
	switch {
	case !sc.wide:
		return cost{}, false
	case r.within != "":
		return p.inDomain(r, r.within, l, sc)
	case r.prefer != "node":
		if c, ok := p.inFewest(r, l, sc); ok {
			return c, true
		}
	}
	p.gather(r, l, sc)
	return p.fill(r)
}

// staysWithin says whether nodes of a preferred domain are in one of those that may not be left, too.
func (p *pass) staysWithin(r *request, picks []pick) bool {
	if r.within == "" {
		return true
	}
	first, ok := p.v.nodes[picks[0].node].row.Label(r.within)
	return ok && !slices.ContainsFunc(picks, func(at pick) bool {
		value, ok := p.v.nodes[at.node].row.Label(r.within)
		return !ok || value != first
	})
}

// inFewest takes the domain that holds most, again and again, and last the smallest that holds what remains. Ranks are
// numbered domain by domain.
func (p *pass) inFewest(r *request, l *lane, sc *scope) (cost, bool) {
	domains := p.v.domainsOf(r.prefer)
	rooms := make([]domainRoom, len(domains))
	for d := range domains {
		rooms[d] = p.roomOf(r, &domains[d], l, sc)
	}
	var sum cost
	for remaining := r.count; remaining > 0; {
		best := -1
		for d := range rooms {
			if rooms[d].capacity == 0 {
				continue
			}
			if best < 0 || betterDomain(&rooms[d], &rooms[best], remaining) {
				best = d
			}
		}
		if best < 0 {
			return cost{}, false
		}
		part := *r
		part.count = min(remaining, rooms[best].capacity)
		p.nodesOf(&part, &domains[best], l, sc)
		c, ok := p.fill(&part)
		if !ok {
			return cost{}, false
		}
		sum.nodes += c.nodes
		sum.left += c.left
		remaining -= part.count
		rooms[best].capacity = 0
	}
	return sum, true
}

// domainRoom is what a domain holds for a request.
type domainRoom struct {
	capacity int   // ranks
	free     int64 // GPUs of the model, or cores for ranks without GPUs
}

// betterDomain orders domains for what remains of a gang: of those that hold it the one with the least left, else the one that
// holds most; else the first.
func betterDomain(a, b *domainRoom, remaining int) bool {
	if all, other := a.capacity >= remaining, b.capacity >= remaining; all != other {
		return all
	} else if !all {
		return cmp.Or(cmp.Compare(b.capacity, a.capacity), cmp.Compare(a.free, b.free)) < 0
	}
	return a.free < b.free
}

// roomOf reckons what a domain holds.
func (p *pass) roomOf(r *request, d *domain, l *lane, sc *scope) domainRoom {
	var room domainRoom
	for _, i := range d.nodes {
		c := p.v.nodes[i].class
		if c == nil || !sc.allows(i) || r.rules != nil && !r.rules.holds.has(i) {
			continue
		}
		room.capacity += r.capacity(c.key.room, c.key.chassis, c.row, l)
		if r.gpus > 0 {
			room.free += int64((c.key.room.free & c.key.chassis.slotsOf(l)).Count())
		} else {
			room.free += int64(c.key.room.cores)
		}
	}
	return room
}

// nodesOf makes the nodes of a domain the candidates.
func (p *pass) nodesOf(r *request, d *domain, l *lane, sc *scope) {
	p.cands = p.cands[:0]
	for k, i := range d.nodes {
		c := p.v.nodes[i].class
		if c == nil || !p.eligible(i, r, sc) {
			continue
		}
		if n := r.capacity(c.key.room, c.key.chassis, c.row, l); n > 0 {
			p.cands = append(p.cands, candidate{c, d.nodes[k : k+1], n, r.tightness(c, l)})
		}
	}
}

// inDomain finds the smallest domain of a label that holds all ranks: the one with the fewest free GPUs of the model, or free
// cores for ranks without GPUs; then the first by value.
func (p *pass) inDomain(r *request, label string, l *lane, sc *scope) (cost, bool) {
	domains := p.v.domainsOf(label)
	best, least := -1, int64(0)
	for d := range domains {
		room := p.roomOf(r, &domains[d], l, sc)
		if room.capacity >= r.count && (best < 0 || room.free < least) {
			best, least = d, room.free
		}
	}
	if best < 0 {
		return cost{}, false
	}
	p.nodesOf(r, &domains[best], l, sc)
	return p.fill(r)
}
