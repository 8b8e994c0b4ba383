package cluster

import (
	"testing"
	"time"
)

func TestAClockIsJudgedByTheMedianOfAtLeastThree(t *testing.T) {
	s := time.Second
	for _, test := range []struct {
		name   string
		ahead  []time.Duration
		off    time.Duration
		judged bool
	}{
		{"nobody else", nil, 0, false},
		{"two clocks", []time.Duration{10 * s}, 0, false},
		{"one of three is wrong, not this one", []time.Duration{10 * s, 0}, 0, true},
		{"this one is behind", []time.Duration{10 * s, 11 * s}, -10 * s, true},
		{"this one is ahead", []time.Duration{-20 * s, -20 * s, -22 * s, -19 * s}, 20 * s, true},
		{"four clocks", []time.Duration{8 * s, 10 * s, 12 * s}, -9 * s, true},
	} {
		if off, judged := offMedian(test.ahead); off != test.off || judged != test.judged {
			t.Errorf("%s: off %v, judged %v; want %v, %v", test.name, off, judged, test.off, test.judged)
		}
	}
}

func TestAServerWithAWrongClockDoesNotLead(t *testing.T) {
	c := startCluster(t, 3, func(i int, c *Config) {
		if i == 0 {
			c.Clock.Wall = func() time.Time { return time.Now().Add(time.Hour) }
		}
	})
	wrong := c.servers[0]
	c.eventually("it to know that its clock is wrong", wrong.clockWrong.Load)
	c.eventually("another leader", func() bool { return c.leader() != wrong })
	c.shutdown(c.leader())
	c.submit("without it")
	if c.leader() == wrong {
		t.Error("a server whose clock is an hour off leads")
	}
}
