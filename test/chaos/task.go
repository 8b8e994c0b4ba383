//go:build chaos

package chaos

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// lease is the stop_after of all jobs.
const lease = 15 * time.Second

// beatScript writes a line five times a second while it runs: who it is, and CLOCK_BOOTTIME, which is what /proc/uptime shows, in
// hundredths of a second. It starts no process for that: what it waits on is a fifo that nobody writes to.
const beatScript = `%s
exec 9<>%s/tick
file=%s/beats/$MUSTER_ALLOC
end=
while :; do
  read -r up _ </proc/uptime
  t=${up/./}
  echo "$MUSTER_ALLOC $MUSTER_NODE $HOSTNAME $MUSTER_JOB_ID $MUSTER_ATTEMPT $MUSTER_GROUP $MUSTER_RANK $$ $t" >>"$file"
  : "${end:=$((t + %d))}"
  [ "$t" -lt "$end" ] || break
  left=$((end - t))
  [ "$left" -lt 20 ] || left=20
  printf -v pause 0.%%02d "$left"
  read -r -t "$pause" -u 9 _ || true
done
exit %s
`

// aJob draws a job: what it takes, how long it runs, how it ends.
func aJob(r *rand.Rand, name, evidence string) *muster.JobSpec {
	spec, group := muster.DefaultJobSpec(), muster.DefaultGroup()
	spec.Name = name
	if r.IntN(4) == 0 {
		group.Count = 2 + r.IntN(2)
	}
	group.Disconnect.StopAfter = lease
	var runs time.Duration
	switch n := r.IntN(10); {
	case n < 5:
		runs = time.Duration(100+r.IntN(900)) * time.Millisecond
	case n < 8:
		runs = time.Duration(1000+r.IntN(4000)) * time.Millisecond
	default:
		runs = time.Duration(5+r.IntN(10)) * time.Second
	}
	trap, exit := "", "0"
	switch n := r.IntN(10); {
	case n == 0 && runs < 2*time.Second: // well with its second attempt
		exit = `"$((MUSTER_ATTEMPT < 2 ? 3 : 0))"`
	case n == 1 && runs < 2*time.Second: // never well
		exit = "4"
	case n == 2:
		trap = "trap '' TERM"
	}
	group.Retry = muster.Retry{Attempts: 2, Delay: 500 * time.Millisecond, MaxDelay: time.Second}
	group.Task.KillTimeout = time.Duration(1+r.IntN(2)) * time.Second
	group.Task.Script = muster.EscapeRuntime(fmt.Sprintf(beatScript, trap, evidence, evidence, runs.Milliseconds()/10, exit))
	group.Task.Resources = muster.Resources{GPUs: 1 + r.IntN(2), MilliCores: 100, Memory: 64 * muster.MiB}
	spec.Groups = []muster.Group{group}
	spec.FillDefaults()
	return &spec
}

func submission(id string, spec *muster.JobSpec) *wire.SubmitRequest {
	return &wire.SubmitRequest{RequestId: id, Specs: []*wire.JobSpec{wire.JobSpecOf(spec)}, Pend: true}
}
