//go:build chaos

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/test/chaos/check"
	"github.com/musterhpc/muster/wire"
)

// watchServer asks one server again and again what it has, until ctx ends: its digest, and whether each node's counters are
// what its allocations add up to.
func (w *World) watchServer(ctx context.Context, name string, out *check.Recorder) {
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		limited, cancel := context.WithTimeout(ctx, time.Second)
		if d, err := w.sample(limited, name); err == nil { // a server that does not answer has nothing to say
			out.Add(check.Record{Digest: d})
		}
		cancel()
	}
}

func (w *World) sample(ctx context.Context, name string) (*check.Digest, error) {
	info, err := w.Status(ctx, name)
	if err != nil {
		return nil, err
	}
	d := &check.Digest{Server: name, Time: now(), Epoch: 1, Index: muster.Index(info.AppliedIndex), Digest: info.Digest, Level: 1}
	conn, err := w.Peer(name)
	if err != nil {
		return nil, err
	}
	reply, err := wire.NewMusterClient(conn).ListNodes(ctx, &wire.ListNodesRequest{Stale: true})
	if err != nil {
		return nil, err
	}
	for _, n := range reply.Nodes {
		if broken := recount(n); broken != "" {
			d.Broken = fmt.Sprintf("%s at version %s", broken, version(reply.Version))
		}
	}
	return d, nil
}

// recount adds up what a node's allocations hold, and says what is not as the node says.
func recount(n *wire.NodeInfo) string {
	free := muster.SlotRange(len(n.Node.Gpus))
	for _, j := range n.Jobs {
		slots := muster.SlotSet(j.Slots)
		if slots&free != slots {
			return fmt.Sprintf("node %s: job %d holds slots %s, of which others hold some", n.Node.Name, j.Job, slots)
		}
		free = free.Minus(slots)
	}
	if int(n.Node.Allocs) != len(n.Jobs) || muster.SlotSet(n.Node.FreeSlots) != free {
		return fmt.Sprintf("node %s counts %d allocations and the free slots %s; it is %d and %s", n.Node.Name, n.Node.Allocs,
			muster.SlotSet(n.Node.FreeSlots), len(n.Jobs), free)
	}
	return ""
}

// agentLine is a line of an agent's log, as far as it is evidence.
type agentLine struct {
	Message string `json:"@message"`
	At      int64  `json:"at"`
	Alloc   string `json:"allocation"`
	Job     uint64 `json:"job"`
	Attempt uint32 `json:"attempt"`
	Group   string `json:"group"`
	Rank    int    `json:"rank"`
	Slots   uint64 `json:"slots"`
	Boot    string `json:"boot"`
	Pid     int    `json:"pid"`
	Class   string `json:"class"`
	Exit    int    `json:"exit"`
	Signal  int    `json:"signal"`
	Gone    int64  `json:"gone"`
}

var lineKinds = map[string]check.EventKind{
	"ready": check.Ready, "starting": check.Intent, "started": check.Started, "ended": check.Ended,
}

// journal reads what a worker's agents wrote down, and what ended one of them in a way that is nobody's plan.
func (m *Machine) journal(node string) (events []check.Event, panics []string, err error) {
	f, err := os.Open(m.logPath())
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	known := map[string]check.Event{} // by allocation: what its intent says
	ends := map[string]check.Event{}  // and its end
	begun := map[string]bool{}        // whether this machine ever had to do with it
	for lines.Scan() {
		text := lines.Text()
		if !strings.HasPrefix(text, "{") {
			if strings.HasPrefix(text, "panic:") || strings.HasPrefix(text, "fatal error:") || strings.Contains(text, "DATA RACE") {
				panics = append(panics, m.Name+": "+text)
			}
			continue
		}
		var line agentLine
		if json.Unmarshal([]byte(text), &line) != nil || line.At == 0 || lineKinds[line.Message] == "" {
			continue // of another kind, or cut off by a kill
		}
		event := check.Event{
			Kind: lineKinds[line.Message], Time: check.Instant(line.At), Node: node, Machine: m.Name, Alloc: line.Alloc,
		}
		switch event.Kind {
		case check.Intent:
			event.Job, event.Attempt, event.Group, event.Rank = muster.JobID(line.Job), line.Attempt, line.Group, line.Rank
			event.Slots, event.Boot = muster.SlotSet(line.Slots).Slots(), line.Boot
			known[line.Alloc] = event
		case check.Started:
			event.PID = line.Pid
		case check.Ended:
			event.Class, event.ExitCode, event.Signal, event.Gone = line.Class, line.Exit, line.Signal, fromWall(line.Gone)
			before, again := ends[line.Alloc]
			if again && before.Class == event.Class && before.ExitCode == event.ExitCode && before.Signal == event.Signal {
				continue // an agent that began anew says what it found
			}
			ends[line.Alloc] = event
			if !begun[line.Alloc] && event.Class == muster.ClassNode.String() {
				continue // a twin that finds in its copied memory what the real one runs
			}
		}
		begun[line.Alloc] = true
		events = append(events, event)
	}
	for i := range events { // what is there before its intent, too
		event := &events[i]
		if intent, ok := known[event.Alloc]; ok {
			event.Job, event.Attempt, event.Group, event.Rank = intent.Job, intent.Attempt, intent.Group, intent.Rank
			event.Slots, event.Boot = intent.Slots, intent.Boot
			event.Gone = goneBy(m.cuts, intent.Time, *event)
		}
	}
	return events, panics, lines.Err()
}

// beats reads what the tasks wrote.
func (w *World) beats() (beats []check.Beat, err error) {
	paths, err := filepath.Glob(filepath.Join(w.evidence(), "beats", "*"))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			if len(f) != 9 {
				continue // the machine lost its power while it was written
			}
			numbers, bad := make([]int64, 9), error(nil)
			for _, i := range []int{3, 4, 6, 7, 8} {
				n, err := strconv.ParseInt(f[i], 10, 64)
				numbers[i], bad = n, errors.Join(bad, err)
			}
			if bad != nil {
				continue // likewise
			}
			beats = append(beats, check.Beat{
				Alloc: f[0], Node: f[1], Machine: f[2], Job: muster.JobID(numbers[3]), Attempt: uint32(numbers[4]), Group: f[5],
				Rank: int(numbers[6]), PID: int(numbers[7]), Time: check.Instant(numbers[8] * int64(10*time.Millisecond)),
			})
		}
	}
	return beats, nil
}
