package worker

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
	"github.com/musterhpc/muster/worker/exec"
)

// realNode is a node whose supervisor and tasks are processes.
func realNode(t testing.TB, s *testServer) (*node, *string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "mw") // short: a socket is in it
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dir: dir, servers: []string{s.address}, real: true}
	t.Cleanup(func() {
		if s, err := exec.DialSupervisor(dir); err == nil {
			_ = syscall.Kill(s.Pid(), syscall.SIGKILL)
			<-s.Done()
			_ = s.Close()
		}
		instance, err := (&store{dir: dir}).instance()
		if err != nil {
			t.Error(err)
		}
		h := newHost(&Config{DataDir: dir, RunDir: dir, Name: "node-1"}, instance)
		if _, err := exec.KillStale(context.Background(), h.config); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	return n, &dir
}

func script(id muster.AllocID, text string) *wire.Desired {
	d := lone(id)
	d.Spec.Groups[0].Task.Command = ""
	d.Spec.Groups[0].Task.Script = text
	d.Alloc.MilliCores, d.Alloc.Memory = 1000, int64(muster.GiB)
	d.Alloc.Port = 0 // whatever runs on this machine
	return d
}

// read gives the output of an allocation as a server reads it.
func read(t testing.TB, address string, q *wire.ReadLogRequest) (out string, chunks []*wire.LogChunk) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	stream, err := wire.NewNodeLogsClient(conn).ReadLog(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for {
		c, err := stream.Recv()
		if err != nil {
			if len(chunks) == 0 || !chunks[len(chunks)-1].GetEnd() {
				t.Fatalf("the log ends with %v after %q", err, b.String())
			}
			return b.String(), chunks
		}
		b.Write(c.GetData())
		chunks = append(chunks, c)
	}
}

func TestARealTaskRunsInItsEnvironmentAndItsLogIsRead(t *testing.T) {
	s := serve(t)
	n, dir := realNode(t, s)
	end := n.agent()
	c := s.accept(t)
	c.welcome()
	c.view(at(10), true, nil, script(id(1), `#!/bin/sh
echo "rank $MUSTER_RANK of $MUSTER_RANKS in $(pwd) with $CUDA_VISIBLE_DEVICES"
cat "$MUSTER_HOSTFILE" >&2
touch "$MUSTER_CHECKPOINT_DIR/saved" "$TMPDIR/x"
while [ ! -e "$MUSTER_CHECKPOINT_DIR/go" ]; do sleep 0.02; done
echo done
exit 7
`))
	report, running := c.awaitReport(id(1), muster.AllocRunning)
	if time.Since(running.Running.Time()) > time.Minute {
		t.Errorf("running since %v", running.Running.Time())
	}
	c.ack(report.GetSeq())

	// The agent goes away and comes back; the task doesn't notice.
	end()
	n.agent()
	c = s.accept(t)
	if r := find(t, c.hello.GetAllocs(), id(1)); r.Phase != muster.AllocRunning {
		t.Fatalf("after the agent's restart: %+v", r)
	}
	c.welcome()
	c.view(at(11), true, nil, script(id(1), ""))
	checkpoints := filepath.Join(*dir, "checkpoints", "1001")
	if err := os.WriteFile(filepath.Join(checkpoints, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out, chunks := read(t, n.address, &wire.ReadLogRequest{Alloc: wire.AllocIDOf(id(1)), Follow: true})
	if _, err := os.Stat(filepath.Join(checkpoints, "saved")); err != nil {
		t.Error(err)
	}
	taskDir := filepath.Join(*dir, "tasks", "1-1")
	if !strings.Contains(out, "rank 0 of 1 in "+taskDir+" with GPU-") || !strings.Contains(out, "127.0.0.1 slots=2\n") ||
		!strings.HasSuffix(out, "done\n") {
		t.Errorf("its output:\n%s", out)
	}
	if !slices.ContainsFunc(chunks, func(c *wire.LogChunk) bool { return c.GetStderr() }) || chunks[0].GetNode() != "node-1" {
		t.Errorf("%v", chunks)
	}
	report, ended := c.awaitReport(id(1), muster.AllocEnded)
	if ended.Class != muster.ClassExit || ended.ExitCode != 7 {
		t.Errorf("%+v", ended)
	}
	c.ack(report.GetSeq())
	c.view(at(12), false, []muster.AllocID{id(1)})
	if tail, _ := read(t, n.address, &wire.ReadLogRequest{Alloc: wire.AllocIDOf(id(1)), LastLines: 1}); tail != "done\n" {
		t.Errorf("its last line: %q", tail)
	}
	from := chunks[0].GetNext()
	if rest, _ := read(t, n.address, &wire.ReadLogRequest{Alloc: wire.AllocIDOf(id(1)), Offset: from}); rest != strings.TrimPrefix(out, string(chunks[0].GetData())) {
		t.Errorf("from %d on: %q", from, rest)
	}
	if _, none := read(t, n.address, &wire.ReadLogRequest{Alloc: wire.AllocIDOf(id(99)), Follow: true}); none[0].GetNote() == "" {
		t.Errorf("what isn't kept: %v", none)
	}
}

// What a task's directory and its checkpoints' are is made before anybody looks for them.
func TestATaskMayRunInADirectoryThatIsMadeForIt(t *testing.T) {
	s := serve(t)
	n, dir := realNode(t, s)
	n.agent()
	c := s.accept(t)
	c.welcome()
	for i, dirs := range [][2]string{
		{"${checkpoint.dir}", "checkpoints/1001"}, {"${task.dir}/tmp", "tasks/1-2/tmp"}, {"${task.dir}", "tasks/1-3"},
	} {
		id := id(uint64(i + 1))
		d := script(id, "pwd\n")
		d.Spec.Groups[0].Task.Dir = dirs[0]
		c.view(at(muster.Index(10+i)), i == 0, nil, d)
		report, ended := c.awaitReport(id, muster.AllocEnded)
		if ended.Class != muster.ClassNone {
			t.Fatalf("in %s: %+v", dirs[0], ended)
		}
		c.ack(report.GetSeq())
		if out, _ := read(t, n.address, &wire.ReadLogRequest{Alloc: wire.AllocIDOf(id)}); out != filepath.Join(*dir, dirs[1])+"\n" {
			t.Errorf("%s is %q", dirs[0], out)
		}
	}
}

func TestARealSupervisorThatDiesTakesItsTasksAlong(t *testing.T) {
	s := serve(t)
	n, dir := realNode(t, s)
	n.agent()
	c := s.accept(t)
	c.welcome()
	c.view(at(10), true, nil, script(id(1), "#!/bin/sh\nsleep 1000 & wait\n"))
	report, _ := c.awaitReport(id(1), muster.AllocRunning)
	c.ack(report.GetSeq())
	supervisor, err := exec.DialSupervisor(*dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(supervisor.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-supervisor.Done()
	_ = supervisor.Close()
	report, ended := c.awaitReport(id(1), muster.AllocEnded)
	if ended.Class != muster.ClassNode || !strings.Contains(ended.Message, "its supervisor") {
		t.Errorf("%+v", ended)
	}
	c.ack(report.GetSeq())
	c.view(at(11), false, []muster.AllocID{id(1)}, script(id(2), "#!/bin/sh\nexit 0\n"))
	if _, ended := c.awaitReport(id(2), muster.AllocEnded); ended.Class != muster.ClassNone {
		t.Errorf("under the next supervisor: %+v", ended)
	}
}

// BenchmarkViewToRunning is the worker's part of the time from submit to a running process: view, first renewal, prepare,
// intent on the disk, fork, report.
func BenchmarkViewToRunning(b *testing.B) {
	s := serve(b)
	n, _ := realNode(b, s)
	n.agent()
	c := s.accept(b)
	c.welcome()
	c.view(at(1), true, nil)
	for i := uint64(1); b.Loop(); i++ {
		c.view(at(muster.Index(2*i)), false, nil, script(id(i), "#!/bin/sh\nexec sleep 1000\n"))
		report, _ := c.awaitReport(id(i), muster.AllocRunning)
		b.StopTimer()
		c.ack(report.GetSeq())
		c.view(at(muster.Index(2*i+1)), false, []muster.AllocID{id(i)})
		report, _ = c.awaitReport(id(i), muster.AllocEnded)
		c.ack(report.GetSeq())
		b.StartTimer()
	}
}
