//go:build chaos

package chaos

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// packet is the head of an IPv4 packet between two hosts of the network.
func packet(from, to byte, protocol byte, source, target uint16) []byte {
	p := make([]byte, 24)
	p[0], p[9] = 0x45, protocol
	copy(p[12:], network)
	copy(p[16:], network)
	p[15], p[19] = from, to
	p[20], p[21], p[22], p[23] = byte(source>>8), byte(source), byte(target>>8), byte(target)
	return p
}

func TestPacketsBelongToLinks(t *testing.T) {
	for _, test := range []struct {
		name   string
		packet []byte
		want   string
	}{
		{"gRPC and raft", packet(1, 2, 6, 40000, 4691), "1→2 rpc"},
		{"their answers", packet(2, 1, 6, 4691, 40000), "2→1 rpc"},
		{"gossip's pings", packet(1, 101, 17, 4692, 4692), "1→101 gossip"},
		{"gossip's streams", packet(1, 101, 6, 40000, 4692), "1→101 gossip"},
		{"another network's", append([]byte{0x45}, make([]byte, 23)...), "none"},
		{"not of IPv4", []byte{0x60, 0, 0, 0}, "none"},
	} {
		got := "none"
		if l, ok := linkOf(test.packet); ok {
			got = fmt.Sprintf("%d→%d %s", l.from, l.to, l.class)
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestRulesAddUpOnALink(t *testing.T) {
	address := func(name string) byte { return name[1] - '0' }
	table := tabulate([]Rule{
		{From: []string{"s1"}, To: []string{"s1", "s2"}, Quality: Quality{Delay: 5 * time.Millisecond, Loss: 0.5}},
		{From: []string{"s1"}, To: []string{"s2"}, Class: Gossip, Quality: Quality{Cut: true, Loss: 0.5}},
	}, address)
	if len(table) != 2 {
		t.Errorf("%d links are worse than usual, want rpc and gossip from s1 to s2: %v", len(table), table)
	}
	for class, want := range map[Class]string{RPC: "loss 50 %, delay 5ms", Gossip: "cut, loss 75 %, delay 5ms"} {
		if got := table[link{1, 2, class}].String(); got != want {
			t.Errorf("%s: %s, want %s", class, got, want)
		}
	}
}

func TestWhatBecomesOfAPacket(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	count := func(q Quality) (copies int, unordered int, longest time.Duration) {
		for range 1000 {
			after, ordered := q.copies(r)
			copies += len(after)
			if !ordered {
				unordered++
			}
			for _, d := range after {
				longest = max(longest, d)
			}
		}
		return copies, unordered, longest
	}
	for _, test := range []struct {
		quality              Quality
		copies, unordered    int
		longestFrom, longest time.Duration
	}{
		{Quality{Cut: true}, 0, 0, 0, 0},
		{Quality{}, 1000, 0, 0, 0},
		{Quality{Loss: 0.3}, 700, 0, 0, 0},
		{Quality{Duplicate: 0.3}, 1300, 0, time.Millisecond, 5 * time.Millisecond},
		{Quality{Reorder: 0.3}, 1000, 300, 10 * time.Millisecond, 21 * time.Millisecond},
		{Quality{Delay: 20 * time.Millisecond, Jitter: 10 * time.Millisecond}, 1000, 0, 28 * time.Millisecond, 30 * time.Millisecond},
	} {
		copies, unordered, longest := count(test.quality)
		near := func(got, want int) bool { return want == 0 && got == 0 || max(got-want, want-got) < 60 && want > 0 }
		if !near(copies, test.copies) || !near(unordered, test.unordered) || longest < test.longestFrom || longest > test.longest {
			t.Errorf("%s: of 1000 packets came %d, %d out of order, the last %s late", test.quality, copies, unordered, longest)
		}
	}
}

func TestAPlanFollowsFromItsSeed(t *testing.T) {
	servers, workers := []string{"s1", "s2", "s3"}, []string{"w1", "w2"}
	text := func(seed uint64) string {
		var b strings.Builder
		for _, s := range Plan(seed, time.Hour, servers, workers, kinds()) {
			fmt.Fprintln(&b, s)
		}
		return b.String()
	}
	if first, again := text(7), text(7); first != again {
		t.Error("one seed gives two plans")
	}
	if text(7) == text(8) {
		t.Error("two seeds give one plan")
	}
	begun := time.Duration(0)
	seen := map[string]bool{}
	for _, s := range Plan(7, time.Hour, servers, workers, kinds()) {
		if s.At < begun || len(s.Faults) < 1 || len(s.Faults) > 2 {
			t.Errorf("%s: begins before the one before is over, or is no single fault or pair", s)
		}
		begun = s.At + s.For
		for _, f := range s.Faults {
			seen[f.Kind()] = true
		}
	}
	if begun > time.Hour {
		t.Errorf("the last fault ends after %s", begun)
	}
	for _, kind := range []string{
		"kill server", "kill majority", "kill all servers", "kill agent", "kill supervisor", "kill supervisor and agent", "stop server",
		"suspend machine", "partition halves", "partition one way", "partition bridge", "partition off servers", "partition off workers",
		"partition gossip only", "partition alone", "delay", "jitter", "loss", "duplicates", "reordering", "clock jumps", "clock drifts",
		"disk fail", "disk hang", "twin", "reboot",
	} {
		if !seen[kind] {
			t.Errorf("an hour has no %s", kind)
		}
	}
}
