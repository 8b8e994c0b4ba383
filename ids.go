package muster

import (
	"fmt"
	"strconv"
	"strings"
)

// JobID is the number of a job, given in Apply, in order, and never used again.
type JobID uint64

func (id JobID) String() string { return strconv.FormatUint(uint64(id), 10) }

// NodeID is the number of a node, given when it first registers, and never used again.
type NodeID uint32

// ShapeID is the number of an interned Shape.
type ShapeID uint32

// Index is a position in the replicated log.
type Index uint64

// Epoch counts the lives of a cluster: a restored snapshot or a recovered majority begins a new one.
type Epoch uint32

// AllocID is the allocation number: the identity that machines use for one rank of one attempt. It is never used again,
// not even over a restore, because the epoch is part of it. The zero value means none.
type AllocID struct {
	Epoch   Epoch
	Counter uint64
}

// String gives the form used in file names, cgroups and logs: "1-42".
func (id AllocID) String() string { return fmt.Sprintf("%d-%d", id.Epoch, id.Counter) }

// IsZero says whether id names no allocation.
func (id AllocID) IsZero() bool { return id == AllocID{} }

// Less is the order in which allocations were made.
func (id AllocID) Less(other AllocID) bool {
	if id.Epoch != other.Epoch {
		return id.Epoch < other.Epoch
	}
	return id.Counter < other.Counter
}

// ParseAllocID reads what String wrote.
func ParseAllocID(s string) (AllocID, error) {
	epoch, counter, ok := strings.Cut(s, "-")
	e, err1 := strconv.ParseUint(epoch, 10, 32)
	c, err2 := strconv.ParseUint(counter, 10, 64)
	if !ok || err1 != nil || err2 != nil {
		return AllocID{}, fmt.Errorf("allocation number %q is not of the form EPOCH-COUNTER", s)
	}
	return AllocID{Epoch: Epoch(e), Counter: c}, nil
}

// Version orders views of the replicated state: a view is newer when its epoch, or within an epoch its index, is higher.
type Version struct {
	Epoch Epoch
	Index Index
}

// Before says whether v is older than other.
func (v Version) Before(other Version) bool {
	if v.Epoch != other.Epoch {
		return v.Epoch < other.Epoch
	}
	return v.Index < other.Index
}

func (v Version) String() string { return fmt.Sprintf("%d/%d", v.Epoch, v.Index) }
