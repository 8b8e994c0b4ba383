package muster

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Time is a moment in Unix milliseconds, as the leader stamped it. Zero means never.
type Time int64

// TimeOf converts a wall-clock time.
func TimeOf(t time.Time) Time { return Time(t.UnixMilli()) }

// Time converts back to the standard library's type, in UTC. The zero Time gives the zero time.Time.
func (t Time) Time() time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(t)).UTC()
}

// Add returns t moved by d, to the millisecond.
func (t Time) Add(d time.Duration) Time { return t + Time(d.Milliseconds()) }

// Sub returns how long after other t is.
func (t Time) Sub(other Time) time.Duration { return time.Duration(t-other) * time.Millisecond }

// MilliCores is an amount of CPU: 1000 is one core.
type MilliCores int64

// String prints cores: "16", "0.5".
func (m MilliCores) String() string {
	s := strconv.FormatFloat(float64(m)/1000, 'f', 3, 64)
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

// MilliGPUs is a part of a GPU: 500 is half of one.
type MilliGPUs int64

// String prints it as the job file does: "0.5".
func (m MilliGPUs) String() string { return MilliCores(m).String() }

// Bytes is an amount of memory or disk.
type Bytes int64

// The binary units of Bytes.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

var byteUnits = []struct {
	name string
	size Bytes
}{
	{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1},
}

// String prints the largest binary unit that divides the amount: "64GiB", "512MiB", "1000B".
func (b Bytes) String() string {
	for _, u := range byteUnits[:4] {
		if b != 0 && b%u.size == 0 {
			return fmt.Sprintf("%d%s", int64(b/u.size), u.name)
		}
	}
	return fmt.Sprintf("%dB", int64(b))
}

// Human prints with one decimal in the binary unit that fits: "79.6GiB".
func (b Bytes) Human() string {
	for _, u := range byteUnits[:4] {
		if b >= u.size {
			s := strconv.FormatFloat(float64(b)/float64(u.size), 'f', 1, 64)
			return strings.TrimSuffix(s, ".0") + u.name
		}
	}
	return fmt.Sprintf("%dB", int64(b))
}

// ParseBytes reads "64GiB", "500MB", "1.5GiB", "0B". A bare number is refused, since nobody agrees on what it means.
func ParseBytes(s string) (Bytes, error) {
	for _, u := range byteUnits {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		if n, err := strconv.ParseInt(number, 10, 64); err == nil && n >= 0 {
			if n > (1<<63-1)/int64(u.size) {
				return 0, fmt.Errorf("size %q is too large", s)
			}
			return Bytes(n) * u.size, nil
		}
		f, err := strconv.ParseFloat(number, 64)
		if err != nil || f < 0 || f*float64(u.size) >= 1<<63 || f != f {
			return 0, fmt.Errorf("size %q is not a number and a unit, as in \"64GiB\"", s)
		}
		return Bytes(f * float64(u.size)), nil
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, fmt.Errorf("size %q has no unit: say \"%sGiB\"", s, s)
	}
	return 0, fmt.Errorf("size %q has no unit that muster knows: KiB, MiB, GiB, TiB, KB, MB, GB, TB or B", s)
}

// ParseDuration reads "90s", "4h", "3d", "1d12h", "500ms". It is time.ParseDuration with days, and refuses negatives.
func ParseDuration(s string) (time.Duration, error) {
	rest, days := s, int64(0)
	if before, after, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseInt(before, 10, 64)
		if err != nil || n < 0 || n > 100_000 {
			return 0, fmt.Errorf("duration %q is not a number and a unit, as in \"90s\", \"4h\" or \"3d\"", s)
		}
		days, rest = n, after
	}
	total := time.Duration(days) * 24 * time.Hour
	if rest == "" && days > 0 || s == "0d" {
		return total, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil {
		if _, numeric := strconv.ParseFloat(s, 64); numeric == nil {
			return 0, fmt.Errorf("duration %q has no unit: say \"%ss\", \"%sm\" or \"%sh\"", s, s, s, s)
		}
		return 0, fmt.Errorf("duration %q is not a number and a unit, as in \"90s\", \"4h\" or \"3d\"", s)
	}
	if d < 0 {
		return 0, fmt.Errorf("duration %q is negative", s)
	}
	return total + d, nil
}

// FormatDuration writes a duration as the job file does: "3d", "1h30m", "90s" as "1m30s", "0s".
func FormatDuration(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	var b strings.Builder
	if days := d / (24 * time.Hour); days > 0 {
		fmt.Fprintf(&b, "%dd", days)
		d -= days * 24 * time.Hour
	}
	for _, u := range []struct {
		name string
		size time.Duration
	}{{"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}, {"us", time.Microsecond}, {"ns", 1}} {
		if n := d / u.size; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d -= n * u.size
		}
	}
	return b.String()
}
