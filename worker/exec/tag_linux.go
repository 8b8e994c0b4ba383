package exec

import (
	"hash/fnv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/musterhpc/muster"
)

// A tag is a mark that daemons keep too, however they clean their environment and leave their session: a resource limit,
// which every descendant inherits. The one on the CPU time of real-time processes is set by nobody else, and a tag is far too
// large a number of microseconds to be reached.
func tag(instance string, id muster.AllocID) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(instance + " " + id.String())) // never fails
	return 1<<62 | h.Sum64()>>2
}

// tagging is held while the limit of this process, which a fork copies, is a task's tag.
var tagging sync.Mutex

// tagged forks with a tag. Where it can't be set the other marks have to do.
func tagged(tag uint64, fork func() error) error {
	tagging.Lock()
	defer tagging.Unlock()
	var own unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_RTTIME, &own) == nil && tag <= own.Max {
		if unix.Setrlimit(unix.RLIMIT_RTTIME, &unix.Rlimit{Cur: tag, Max: own.Max}) == nil {
			defer func() { _ = unix.Setrlimit(unix.RLIMIT_RTTIME, &own) }() // what was is always allowed
		}
	}
	return fork()
}

func hasTag(pid int, tag uint64) bool {
	var limit unix.Rlimit
	return unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &limit) == nil && limit.Cur == tag
}
