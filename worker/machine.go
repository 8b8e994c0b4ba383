package worker

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/worker/gpu"
)

// describe fills in what the worker tells the servers about its node.
func describe(ctx context.Context, c *Config, id identity, fencing string) (muster.Node, error) {
	n := muster.Node{
		Name: c.Name, Address: c.Address, IP: c.IP,
		Hardware: id.Hardware, Boot: id.Boot, Instance: id.Instance,
		Labels: c.Labels, Fencing: fencing, Version: c.Version,
		PortLow: c.PortLow, PortHigh: c.PortHigh, Cost: c.Cost,
	}
	if s := c.Simulate; s != nil {
		n.MilliCores, n.Memory = s.MilliCores, s.Memory
		n.GPUs = gpu.Simulated(id.Instance, s.GPUs, s.Model, s.GPUMemory)
		c.Logger.Info("the GPUs of this node are simulated", "gpus", s.GPUs, "model", s.Model)
		return n, nil
	}
	memory, err := machineMemory()
	if err != nil {
		return n, err
	}
	n.MilliCores, n.Memory = muster.MilliCores(runtime.NumCPU())*1000, memory
	var why string
	if n.GPUs, why = gpu.Detect(ctx); why != "" {
		c.Logger.Info("GPUs of this node", "usable", len(n.GPUs), "because", why)
	}
	n.MilliCores -= c.ReserveCores
	n.Memory -= c.ReserveMemory
	if n.MilliCores <= 0 || n.Memory <= 0 {
		return n, muster.Errorf(muster.KindUsage, "worker: reserve leaves nothing of %d cores and %s", runtime.NumCPU(), memory.Human())
	}
	return n, nil
}

func machineMemory() (muster.Bytes, error) {
	total, _, err := meminfo()
	return total, err
}

// meminfo gives the machine's memory, and what of it is in use.
func meminfo() (total, used muster.Bytes, err error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, 0, fmt.Errorf("this machine's memory: %w", err)
	}
	defer f.Close()
	var available muster.Bytes
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(fields[1], 10, 64) // 0 is caught below
		switch fields[0] {
		case "MemTotal:":
			total = muster.Bytes(kib) * muster.KiB
		case "MemAvailable:":
			available = muster.Bytes(kib) * muster.KiB
		}
	}
	if total <= 0 {
		return 0, 0, fmt.Errorf("this machine's memory: /proc/meminfo has no MemTotal")
	}
	return total, total - available, lines.Err()
}

// cpuMeter measures how many cores are busy between two readings of /proc/stat.
type cpuMeter struct {
	busy time.Duration
	at   time.Time
}

// tick is the unit of /proc/stat: USER_HZ, which is 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

func (m *cpuMeter) read(now time.Time) muster.MilliCores {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(data), "\n")
	var busy time.Duration
	for i, field := range strings.Fields(line) {
		if i == 0 || i == 4 || i == 5 || i > 8 { // its name, idle, waiting for disks; guests are in user already
			continue
		}
		n, _ := strconv.ParseInt(field, 10, 64) // a kernel that writes anything else has no gauge
		busy += time.Duration(n) * tick
	}
	before := *m
	m.busy, m.at = busy, now
	if before.at.IsZero() || !now.After(before.at) {
		return 0
	}
	return muster.MilliCores(1000 * (busy - before.busy).Seconds() / now.Sub(before.at).Seconds())
}

// account is the user whom tasks run as: the agent's own.
type account struct {
	Name  string
	Home  string
	Shell string
	Root  bool
}

func ownAccount() (account, error) {
	a := account{Shell: "/bin/sh", Home: "/", Root: os.Geteuid() == 0}
	u, err := user.Current()
	if err != nil {
		return a, fmt.Errorf("the agent's own user: %w", err)
	}
	a.Name = u.Username
	if u.HomeDir != "" {
		a.Home = u.HomeDir
	}
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return a, nil // users of a directory service are not in it either
	}
	for line := range strings.Lines(string(passwd)) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) == 7 && f[0] == a.Name && f[6] != "" {
			a.Shell = f[6]
		}
	}
	return a, nil
}
