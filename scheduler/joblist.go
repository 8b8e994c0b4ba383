package scheduler

import (
	"slices"
	"sort"

	"github.com/musterhpc/muster"
)

// jobBlock is how many jobs a block of a jobList holds at most: small enough to move, large enough to be few.
const jobBlock = 512

// jobList holds job numbers in ascending order, in blocks, so that none of adding, removing and counting walks a long queue.
// Invariant: no block is empty.
type jobList struct {
	blocks [][]muster.JobID
	len    int
}

// block is the position of the last block that begins at or before id; 0 when there is none.
func (l *jobList) block(id muster.JobID) int {
	return max(0, sort.Search(len(l.blocks), func(i int) bool { return l.blocks[i][0] > id })-1)
}

// add inserts id; one that is there already stays alone.
func (l *jobList) add(id muster.JobID) {
	if l.len == 0 {
		l.blocks = append(l.blocks[:0], []muster.JobID{id})
		l.len = 1
		return
	}
	b := l.block(id)
	at, found := slices.BinarySearch(l.blocks[b], id)
	if found {
		return
	}
	l.len++
	if len(l.blocks[b]) < jobBlock {
		l.blocks[b] = slices.Insert(l.blocks[b], at, id)
		return
	}
	if at == jobBlock { // the usual case: jobs come in order, and full blocks stay full
		l.blocks = slices.Insert(l.blocks, b+1, append(make([]muster.JobID, 0, jobBlock), id))
		return
	}
	upper := append(make([]muster.JobID, 0, jobBlock), l.blocks[b][jobBlock/2:]...)
	l.blocks[b] = l.blocks[b][:jobBlock/2]
	l.blocks = slices.Insert(l.blocks, b+1, upper)
	if at > jobBlock/2 {
		b, at = b+1, at-jobBlock/2
	}
	l.blocks[b] = slices.Insert(l.blocks[b], at, id)
}

// remove takes id out, if it is there.
func (l *jobList) remove(id muster.JobID) {
	if l.len == 0 {
		return
	}
	b := l.block(id)
	at, found := slices.BinarySearch(l.blocks[b], id)
	if !found {
		return
	}
	l.len--
	switch {
	case len(l.blocks[b]) == 1 && b == 0:
		l.blocks = l.blocks[1:]
	case len(l.blocks[b]) == 1:
		l.blocks = slices.Delete(l.blocks, b, b+1)
	case at == 0:
		l.blocks[b] = l.blocks[b][1:]
	default:
		l.blocks[b] = slices.Delete(l.blocks[b], at, at+1)
	}
}

// first is the lowest number of a list that is not empty.
func (l *jobList) first() muster.JobID { return l.blocks[0][0] }

// after is the lowest number above id.
func (l *jobList) after(id muster.JobID) (muster.JobID, bool) {
	if l.len == 0 {
		return 0, false
	}
	b := l.block(id)
	at, found := slices.BinarySearch(l.blocks[b], id)
	if found {
		at++
	}
	if at < len(l.blocks[b]) {
		return l.blocks[b][at], true
	}
	if b+1 < len(l.blocks) {
		return l.blocks[b+1][0], true
	}
	return 0, false
}

// below counts the numbers below id and appends the highest of them, n at most and descending, to out.
func (l *jobList) below(id muster.JobID, n int, out []muster.JobID) (int, []muster.JobID) {
	if l.len == 0 {
		return 0, out
	}
	b := l.block(id)
	at, _ := slices.BinarySearch(l.blocks[b], id)
	count := at
	for i := range b {
		count += len(l.blocks[i])
	}
	for ; n > 0; n-- {
		if at == 0 {
			if b == 0 {
				break
			}
			b--
			at = len(l.blocks[b])
		}
		at--
		out = append(out, l.blocks[b][at])
	}
	return count, out
}
