//go:build chaos

package chaos

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Class is what a packet belongs to.
type Class string

// The classes, told by ports.
const (
	AnyClass Class = ""
	RPC      Class = "rpc" // raft, gRPC and the rest
	Gossip   Class = "gossip"
)

const gossipPort = 4692

// Quality is what happens to the packets of a link. The zero value is a good link.
type Quality struct {
	Cut       bool
	Loss      float64       // 0 to 1
	Delay     time.Duration // of each packet
	Jitter    time.Duration // up to so much more; the order stays
	Duplicate float64       // of the packets come twice
	Reorder   float64       // of the packets come up to 20 ms later than those behind them
}

func (q Quality) String() string {
	var words []string
	say := func(yes bool, format string, args ...any) {
		if yes {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	say(q.Cut, "cut")
	say(q.Loss > 0, "loss %.0f %%", q.Loss*100)
	say(q.Delay > 0, "delay %s", q.Delay)
	say(q.Jitter > 0, "jitter %s", q.Jitter)
	say(q.Duplicate > 0, "duplicates %.0f %%", q.Duplicate*100)
	say(q.Reorder > 0, "reorders %.0f %%", q.Reorder*100)
	return strings.Join(words, ", ")
}

// with is both on one link.
func (q Quality) with(o Quality) Quality {
	either := func(a, b float64) float64 { return 1 - (1-a)*(1-b) }
	return Quality{
		Cut: q.Cut || o.Cut, Loss: either(q.Loss, o.Loss), Delay: q.Delay + o.Delay, Jitter: q.Jitter + o.Jitter,
		Duplicate: either(q.Duplicate, o.Duplicate), Reorder: either(q.Reorder, o.Reorder),
	}
}

// Rule makes links worse: those from one of From to one of To, in this direction.
type Rule struct {
	From, To []string
	Class    Class
	Quality
}

func (r Rule) String() string {
	class := ""
	if r.Class != AnyClass {
		class = string(r.Class) + " "
	}
	return fmt.Sprintf("%s→%s: %s%s", strings.Join(r.From, ","), strings.Join(r.To, ","), class, r.Quality)
}

// link is one direction between two hosts, and one class of packets.
type link struct {
	from, to byte
	class    Class
}

// tabulate gives the links that rules make worse.
func tabulate(rules []Rule, address func(name string) byte) map[link]Quality {
	table := map[link]Quality{}
	for _, r := range rules {
		for _, from := range r.From {
			for _, to := range r.To {
				for _, class := range []Class{RPC, Gossip} {
					if from != to && (r.Class == AnyClass || r.Class == class) {
						l := link{address(from), address(to), class}
						table[l] = table[l].with(r.Quality)
					}
				}
			}
		}
	}
	return table
}

// linkOf tells which link a packet uses; false: it is none of this network's.
func linkOf(packet []byte) (link, bool) {
	if len(packet) < 20 || packet[0]>>4 != 4 || !slices.Equal(packet[12:15], network[:3]) || !slices.Equal(packet[16:19], network[:3]) {
		return link{}, false
	}
	l := link{from: packet[15], to: packet[19], class: RPC}
	header := int(packet[0]&15) * 4
	if (packet[9] == 6 || packet[9] == 17) && len(packet) >= header+4 {
		source, target := binary.BigEndian.Uint16(packet[header:]), binary.BigEndian.Uint16(packet[header+2:])
		if source == gossipPort || target == gossipPort {
			l.class = Gossip
		}
	}
	return l, true
}

// copies says when a packet arrives after now; nothing: it is lost.
func (q Quality) copies(random *rand.Rand) (after []time.Duration, ordered bool) {
	if q.Cut || q.Loss > 0 && random.Float64() < q.Loss {
		return nil, true
	}
	d := q.Delay
	if q.Jitter > 0 {
		d += time.Duration(random.Int64N(int64(q.Jitter)))
	}
	ordered = true
	if q.Reorder > 0 && random.Float64() < q.Reorder {
		d, ordered = d+time.Millisecond+time.Duration(random.Int64N(int64(20*time.Millisecond))), false
	}
	after = append(after, d)
	if q.Duplicate > 0 && random.Float64() < q.Duplicate {
		after = append(after, d+time.Duration(random.Int64N(int64(5*time.Millisecond))))
	}
	return after, ordered
}

// delayed is a packet on its way.
type delayed struct {
	due    time.Time
	number uint64 // of equally due ones the earlier goes first
	to     byte
	packet []byte
}

type delays []delayed

func (d delays) Len() int { return len(d) }
func (d delays) Less(i, j int) bool {
	if !d[i].due.Equal(d[j].due) {
		return d[i].due.Before(d[j].due)
	}
	return d[i].number < d[j].number
}
func (d delays) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *delays) Push(x any)   { *d = append(*d, x.(delayed)) }
func (d *delays) Pop() any {
	old := *d
	last := old[len(old)-1]
	*d = old[:len(old)-1]
	return last
}

var _ heap.Interface = (*delays)(nil)
