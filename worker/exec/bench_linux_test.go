package exec

import (
	"testing"
	"time"
)

// BenchmarkTrue prepares, starts and ends `true`. cpu-ms is the supervisor's and the tasks' together.
func BenchmarkTrue(b *testing.B) {
	for _, c := range []struct {
		name  string
		plain bool
	}{{"isolated", false}, {"plain", true}} {
		b.Run(c.name, func(b *testing.B) {
			n := newNode(b, c.plain)
			before := cpuOf(b, n.Pid())
			for b.Loop() {
				task := n.task("")
				task.Argv = []string{"true"}
				n.ended(n.run(task))
			}
			b.ReportMetric(float64((cpuOf(b, n.Pid())-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// cpuOf is what a process and its waited-for children have used.
func cpuOf(b *testing.B, pid int) time.Duration {
	b.Helper()
	fields := statFields(b, pid)
	var ticks int
	for _, i := range []int{11, 12, 13, 14} { // utime, stime, cutime, cstime
		ticks += mustAtoi(b, fields[i])
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
