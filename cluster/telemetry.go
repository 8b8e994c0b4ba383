package cluster

import (
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	gometrics "github.com/hashicorp/go-metrics"
	"github.com/prometheus/client_golang/prometheus"
)

// libraries is where raft, raft-boltdb and memberlist send what they measure of themselves: to one place in a process, whatever
// runs in it. Here it takes Prometheus' forms: names in snake_case with their unit, counters with _total, times in seconds as
// histograms, so that servers can be added up.
type libraries struct {
	mu       sync.RWMutex
	series   map[string]func(float64) // by kind, key and labels; nil: one too many
	families map[string]*family
}

// family is one metric with its label names.
type family struct {
	labels  []string
	series  int
	counter *prometheus.CounterVec
	gauge   *prometheus.GaugeVec
	histo   *prometheus.HistogramVec
}

// Bounds of what a library may make: raft's labels are servers and kinds of messages.
const (
	maxFamilies = 200
	maxSeries   = 64 // of a family
)

// Libraries makes the process's libraries send their measurements to the collector that it gives. It must be called before
// Start, and once.
func Libraries() (prometheus.Collector, error) {
	l := &libraries{series: map[string]func(float64){}, families: map[string]*family{}}
	config := gometrics.DefaultConfig("")
	config.EnableHostname, config.EnableRuntimeMetrics = false, false
	config.EnableTypePrefix = true // tells times from other samples
	config.TimerGranularity = time.Second
	_, err := gometrics.NewGlobal(config, l)
	return l, err
}

// Describe says nothing beforehand: which metrics there are the libraries decide as they go.
func (l *libraries) Describe(chan<- *prometheus.Desc) {}

// Collect gives what was sent.
func (l *libraries) Collect(out chan<- prometheus.Metric) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, f := range l.families {
		switch {
		case f.counter != nil:
			f.counter.Collect(out)
		case f.gauge != nil:
			f.gauge.Collect(out)
		default:
			f.histo.Collect(out)
		}
	}
}

// The kinds that go-metrics puts before a key.
const (
	kindTimer   = "timer"
	kindSample  = "sample"
	kindCounter = "counter"
	kindGauge   = "gauge"
)

var keyBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 128); return &b }}

// note takes one measurement.
func (l *libraries) note(key []string, v float64, labels []gometrics.Label) {
	buffer := keyBuffers.Get().(*[]byte)
	defer keyBuffers.Put(buffer)
	id := (*buffer)[:0]
	for _, part := range key {
		id = append(append(id, part...), '.')
	}
	for _, label := range labels {
		id = append(append(append(append(id, label.Name...), '='), label.Value...), ',')
	}
	*buffer = id
	l.mu.RLock()
	take, known := l.series[string(id)]
	l.mu.RUnlock()
	if !known {
		take = l.add(string(id), key, labels)
	}
	if take != nil {
		take(v)
	}
}

// add makes a series; nil when there are too many, or its labels are not those of its family.
func (l *libraries) add(id string, key []string, labels []gometrics.Label) func(float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if take, known := l.series[id]; known {
		return take
	}
	if len(l.series) >= maxFamilies*maxSeries || len(key) < 2 {
		return nil
	}
	names, values := make([]string, len(labels)), make([]string, len(labels))
	for i, label := range labels {
		names[i], values[i] = snake(label.Name), label.Value
	}
	name, scale := promName(key[0], key[1:])
	f := l.families[name]
	if f == nil && len(l.families) < maxFamilies {
		f = newFamily(key[0], name, strings.Join(key[1:], "."), names)
		l.families[name] = f
	}
	if f == nil || f.series >= maxSeries || !slices.Equal(f.labels, names) {
		l.series[id] = nil
		return nil
	}
	f.series++
	take := f.take(values, scale)
	l.series[id] = take
	return take
}

func newFamily(kind, name, key string, labels []string) *family {
	f := &family{labels: labels}
	help := "As the library measures it: " + key + "."
	switch kind {
	case kindCounter:
		f.counter = prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	case kindGauge:
		f.gauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	default:
		buckets := prometheus.ExponentialBuckets(1, 4, 13) // to 16 Mi
		if strings.HasSuffix(name, "_seconds") {
			buckets = prometheus.ExponentialBuckets(0.0001, 2.5, 13) // to 6 s
		}
		f.histo = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	return f
}

// take gives what takes the measurements of one series.
func (f *family) take(values []string, scale float64) func(float64) {
	switch {
	case f.counter != nil:
		c := f.counter.WithLabelValues(values...)
		return func(v float64) { c.Add(max(0, v*scale)) }
	case f.gauge != nil:
		g := f.gauge.WithLabelValues(values...)
		return func(v float64) { g.Set(v * scale) }
	}
	h := f.histo.WithLabelValues(values...)
	return func(v float64) { h.Observe(v * scale) }
}

// Units that keys don't say: those in milliseconds become seconds, those in bytes say so.
var (
	inMilliseconds = map[string]bool{"raft.leader.lastContact": true, "raft.leader.oldestLogAge": true, "raft.fsm.lastRestoreDuration": true,
		"raft.boltdb.txstats.rebalanceTime": true, "raft.boltdb.txstats.spillTime": true, "raft.boltdb.txstats.writeTime": true}
	inBytes = map[string]bool{"raft.boltdb.logSize": true, "raft.boltdb.logBatchSize": true, "memberlist.tcp.sent": true,
		"memberlist.udp.sent": true, "memberlist.udp.received": true, "memberlist.size.remote": true, "memberlist.size.local": true}
)

// promName gives the name of a metric and what its values are multiplied by.
func promName(kind string, key []string) (name string, scale float64) {
	path := strings.Join(key, ".")
	name, scale = snake(strings.Join(key, "_")), 1
	switch {
	case inMilliseconds[path]:
		name, scale = strings.TrimSuffix(name, "_time")+"_seconds", 0.001
	case kind == kindTimer:
		name = strings.TrimSuffix(name, "_time") + "_seconds"
	case inBytes[path]:
		name += "_bytes"
	}
	if kind == kindCounter {
		name += "_total"
	}
	return name, scale
}

// snake writes appendEntries as append_entries; what a name may not have becomes a line.
func snake(s string) string {
	var out strings.Builder
	for i, r := range s {
		switch {
		case unicode.IsUpper(r):
			if i > 0 && !strings.HasSuffix(out.String(), "_") {
				out.WriteByte('_')
			}
			out.WriteRune(unicode.ToLower(r))
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			out.WriteRune(r)
		default:
			out.WriteByte('_')
		}
	}
	return out.String()
}

// What go-metrics calls.

func (l *libraries) SetGauge(key []string, v float32) { l.note(key, float64(v), nil) }
func (l *libraries) SetGaugeWithLabels(key []string, v float32, labels []gometrics.Label) {
	l.note(key, float64(v), labels)
}
func (l *libraries) EmitKey([]string, float32)           {} // nobody does
func (l *libraries) IncrCounter(key []string, v float32) { l.note(key, float64(v), nil) }
func (l *libraries) IncrCounterWithLabels(key []string, v float32, labels []gometrics.Label) {
	l.note(key, float64(v), labels)
}
func (l *libraries) AddSample(key []string, v float32) { l.note(key, float64(v), nil) }
func (l *libraries) AddSampleWithLabels(key []string, v float32, labels []gometrics.Label) {
	l.note(key, float64(v), labels)
}
