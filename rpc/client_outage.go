package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/musterhpc/muster"
)

// outage is a time in which a call has no answer. It tries one server after the other, says once that it takes long, and gives
// up when the client's patience ends.
type outage struct {
	client *Client
	began  time.Time
	late   *time.Timer

	mu      sync.Mutex
	rounds  int      // of tries at all servers, so far
	tried   []string // addresses, in order, each once
	last    error    // why the last try failed
	refused error    // what a server that could be reached said of it
}

func (c *Client) outage() *outage {
	o := &outage{client: c, began: time.Now()}
	o.late = time.AfterFunc(sayAfter, o.say)
	return o
}

// end says that there is an answer, or that nobody wants one any more.
func (o *outage) end() { o.late.Stop() }

func (o *outage) say() {
	o.mu.Lock()
	reason := o.last
	o.mu.Unlock()
	until := "until it comes back"
	if p := o.client.options.Patience; p > 0 {
		until = fmt.Sprintf("for %s in all", p)
	}
	if reason == nil {
		o.client.options.Notify("no answer yet; waiting " + until)
		return
	}
	o.client.options.Notify(fmt.Sprintf("%v; trying %s", reason, until))
}

// limit is how long one server may take. It holds a request that needs a leader for five seconds; but one that is cut off and
// takes itself for the leader holds it for nothing, so with others to ask the first rounds are short.
func (o *outage) limit() time.Duration {
	if len(o.client.candidates()) < 2 {
		return answerLimit
	}
	return min(answerLimit, time.Duration(o.rounds+1)*shortAnswer)
}

// try does what at does, at one server after the other, until it succeeds or fails for a reason that another server would
// give too.
func (o *outage) try(ctx context.Context, at func(ctx context.Context, address string) error) error {
	if p := o.client.options.Patience; p > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, o.began.Add(p))
		defer cancel()
	}
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		for _, address := range o.client.candidates() {
			err := at(ctx, address)
			if err == nil {
				o.client.answered(address)
				return nil
			}
			if muster.KindOf(err) != muster.KindUnavailable && ctx.Err() == nil {
				return err
			}
			o.failed(address, err)
			if ctx.Err() != nil {
				return o.err(ctx)
			}
		}
		o.rounds++
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return o.err(ctx)
		}
	}
}

const unreachable = "the server can't be reached: " // how wire says it

func (o *outage) failed(address string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Contains(o.tried, address) {
		o.tried = append(o.tried, address)
	}
	switch {
	case muster.KindOf(err) != muster.KindUnavailable:
		return // the client's own deadline; the reason lies in the tries before
	case strings.HasPrefix(err.Error(), noLeader):
		o.refused = err
	default:
		o.client.unreachable(address)
	}
	o.last = err
}

// err is what a call ends with that got no answer.
func (o *outage) err(ctx context.Context) error {
	if ctx.Err() == context.Canceled {
		return context.Canceled
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refused != nil {
		return o.refused
	}
	where, why, hint := strings.Join(o.tried, ", "), "no answer in time", "Is the cluster running?"
	if len(o.tried) > 1 {
		where = "any of " + where
	}
	if o.last != nil {
		why = o.last.Error()
		if e := (*muster.Error)(nil); errors.As(o.last, &e) {
			if why = e.Message; e.Hint != "" {
				hint = e.Hint
			}
		}
		why = strings.TrimPrefix(why, unreachable)
	}
	return muster.Errorf(muster.KindUnavailable, "cannot reach %s: %s", where, why).WithHint("%s", hint)
}
