// Package bench measures a cluster of real processes: three servers, one worker, real fsync, real executions. Run it with
// `make bench`; nothing here fails for being slow.
package bench

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/test/harness"
	"github.com/musterhpc/muster/wire"
)

func TestMain(m *testing.M) {
	code := m.Run()
	harness.Cleanup()
	os.Exit(code)
}

func submit(b *testing.B, client *rpc.Client, r *wire.SubmitRequest) uint64 {
	b.Helper()
	reply, err := client.Submit(context.Background(), r)
	if err != nil {
		b.Fatal(err)
	}
	return reply.GetIds()[0]
}

func finish(b *testing.B, client *rpc.Client, ids []uint64) {
	b.Helper()
	var refs []*wire.JobRef
	for _, id := range ids {
		refs = append(refs, &wire.JobRef{Id: id})
	}
	if err := client.WatchJobs(context.Background(), &wire.WatchJobsRequest{Jobs: refs}, func(*wire.JobInfo) error { return nil }); err != nil {
		b.Fatal(err)
	}
}

func report(b *testing.B, unit string, samples []time.Duration) {
	b.Helper()
	slices.Sort(samples)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(samples[len(samples)/2]), "p50-"+unit)
	b.ReportMetric(ms(samples[len(samples)-1]), "max-"+unit)
	b.ReportMetric(0, "ns/op")
}

// fifo makes a pipe that a task writes a line to when it runs.
type fifo struct {
	path   string
	reader *bufio.Reader
}

func newFIFO(b *testing.B, dir string) *fifo {
	b.Helper()
	path := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(path, 0o666); err != nil {
		b.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { file.Close() })
	return &fifo{path, bufio.NewReader(file)}
}

func (f *fifo) wait(b *testing.B) {
	b.Helper()
	if _, err := f.reader.ReadString('\n'); err != nil {
		b.Fatal(err)
	}
}

// From the call of Submit to the first line of the process, on an idle cluster.
func BenchmarkSubmitToRunning(b *testing.B) {
	c := harness.Dev(b, "--workers", "1")
	client, pipe := c.Client(), newFIFO(b, c.Dir)
	var samples []time.Duration
	for b.Loop() {
		began := time.Now()
		id := submit(b, client, harness.Script("started", 0, "echo > "+pipe.path))
		pipe.wait(b)
		samples = append(samples, time.Since(began))
		finish(b, client, []uint64{id})
	}
	report(b, "ms", samples)
}

// Acknowledged submissions a second: 64 callers over 16 connections, jobs that wait behind a full cluster.
func BenchmarkSubmissions(b *testing.B) {
	c := harness.Dev(b, "--workers", "1")
	var clients []*rpc.Client
	for range 16 {
		clients = append(clients, c.Client())
	}
	submit(b, clients[0], harness.Script("full", 8, "exec sleep 3600"))
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var callers sync.WaitGroup
	for n := range 64 {
		callers.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := clients[n%16].Submit(context.Background(), harness.Script("waits", 1, "exec true")); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "submissions/s")
}

// Jobs of one `true` each, from submission to known end, a second.
func BenchmarkTrueJobs(b *testing.B) {
	c := harness.Dev(b, "--workers", "1")
	client := c.Client()
	b.ResetTimer()
	var mu sync.Mutex
	var ids []uint64
	var left atomic.Int64
	left.Store(int64(b.N))
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for left.Add(-1) >= 0 {
				reply, err := client.Submit(context.Background(), harness.Script("true", 0, "exec true"))
				if err != nil {
					b.Error(err)
					return
				}
				mu.Lock()
				ids = append(ids, reply.GetIds()...)
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	finish(b, client, ids)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

// From kill -9 of the leader to the next acknowledged submission, and to its process running; 20 kills.
func BenchmarkFailover(b *testing.B) {
	c := harness.Dev(b, "--workers", "1")
	client, pipe := c.Client(), newFIFO(b, c.Dir)
	for b.Loop() {
		var acknowledged, running []time.Duration
		for range 20 {
			var leader int
			harness.Until(b, "all servers are up and one leads", func() error {
				leader = 0
				for _, a := range c.Agents() {
					if a.Role == "server" && a.Pid == 0 {
						return fmt.Errorf("%s is down", a.Name)
					}
					if a.Leader {
						leader = a.Pid
					}
				}
				if leader == 0 {
					return fmt.Errorf("no leader")
				}
				return nil
			})
			finish(b, client, []uint64{submit(b, client, harness.Script("before", 0, "exec true"))})
			began := time.Now()
			if err := syscall.Kill(leader, syscall.SIGKILL); err != nil {
				b.Fatal(err)
			}
			submit(b, client, harness.Script("after", 0, "echo > "+pipe.path))
			acknowledged = append(acknowledged, time.Since(began))
			pipe.wait(b)
			running = append(running, time.Since(began))
		}
		report(b, "ack-ms", acknowledged)
		report(b, "running-ms", running)
	}
}

// Leader changes in a minute with four busy loops on the machine's cores and 16 writers.
func BenchmarkLeaderUnderLoad(b *testing.B) {
	c := harness.Dev(b, "--workers", "1")
	term := func() uint64 {
		reply, err := c.Client().ListServers(context.Background(), &wire.ListServersRequest{})
		if err != nil {
			b.Fatal(err)
		}
		var term uint64
		for _, s := range reply.GetServers() {
			term = max(term, s.GetTerm())
		}
		return term
	}
	submit(b, c.Client(), harness.Script("full", 8, "exec sleep 3600"))
	for b.Loop() {
		before := term()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		var busy sync.WaitGroup
		var writes atomic.Int64
		for range 4 {
			loop := c.Command("run", "--help")
			loop.Path, loop.Args = "/bin/sh", []string{"sh", "-c", "while :; do :; done"}
			if err := loop.Start(); err != nil {
				b.Fatal(err)
			}
			busy.Go(func() {
				<-ctx.Done()
				_ = loop.Process.Kill()
				_ = loop.Wait()
			})
		}
		for range 16 {
			client := c.Client()
			busy.Go(func() {
				for ctx.Err() == nil {
					if _, err := client.Submit(ctx, harness.Script("waits", 1, "exec true")); err == nil {
						writes.Add(1)
					}
				}
			})
		}
		busy.Wait()
		cancel()
		b.ReportMetric(float64(term()-before), "leader-changes/min")
		b.ReportMetric(float64(writes.Load())/60, "submissions/s")
	}
}
