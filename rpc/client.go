package rpc

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// DefaultPort is the RPC port of a server.
const DefaultPort = "4691"

const (
	// defaultPatience is how long a client tries before it says that nobody answers.
	defaultPatience = 10 * time.Second
	// sayAfter is when it tells its user that it is still trying.
	sayAfter = 2 * time.Second
	// answerLimit is how long one server may take: it holds a request for five seconds, then says that there is no leader.
	answerLimit = hold + time.Second
	// shortAnswer is the same in the first round of tries at several servers; see outage.limit.
	shortAnswer = 2 * time.Second
)

// Options say how a Client behaves. The zero value serves.
type Options struct {
	// Patience is how long a call tries on while no server, or no leader, answers; 0: ten seconds; negative: until its
	// context ends.
	Patience time.Duration
	// Notify is told, in a sentence for people, that a call is still trying after two seconds, and "reconnected" when a
	// stream that broke goes on. It may be called from any goroutine; nil: nobody is told.
	Notify func(string)
	TLS    *tls.Config // nil: plaintext
	// Dial replaces the way to connect to an address; nil: TCP, or a unix socket.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// Client talks to a cluster through whichever of its servers answers. It may be used by many goroutines.
type Client struct {
	options     Options
	connections *connections
	given       []string // addresses, as they were given

	mu      sync.Mutex
	current string         // the address that answered last
	leader  string         // learnt; "" = not known
	avoided string         // a learnt leader that can't be reached from here
	seen    muster.Version // the newest that an answer was read from
}

// Dial makes a client of the cluster that has servers at addresses: "host", "host:port" or "unix:///path". It connects with the
// first call; an error means that an address makes no sense.
func Dial(addresses []string, options Options) (*Client, error) {
	if len(addresses) == 0 {
		return nil, muster.Errorf(muster.KindUsage, "no server's address is given").WithHint("Set MUSTER_ADDR, or try: muster dev")
	}
	c := &Client{options: options, connections: newConnections(toServer(options.Dial, options.TLS))}
	if c.options.Notify == nil {
		c.options.Notify = func(string) {}
	}
	switch {
	case options.Patience == 0:
		c.options.Patience = defaultPatience
	case options.Patience < 0:
		c.options.Patience = 0
	}
	for _, a := range addresses {
		address, err := completeAddress(a)
		if err != nil {
			return nil, err
		}
		c.given = append(c.given, address)
	}
	c.current = c.given[0]
	return c, nil
}

// Patiently gives a client over the same connections whose calls try on until their context ends. It ends with c.
func (c *Client) Patiently() *Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	patient := &Client{options: c.options, connections: c.connections, given: c.given, current: c.current, leader: c.leader,
		avoided: c.avoided, seen: c.seen}
	patient.options.Patience = 0
	return patient
}

// Close ends all connections.
func (c *Client) Close() error {
	c.connections.close()
	return nil
}

func completeAddress(a string) (string, error) {
	a = strings.TrimSpace(a)
	if path, ok := strings.CutPrefix(a, unixScheme); ok {
		if !strings.HasPrefix(path, "/") {
			return "", muster.Errorf(muster.KindUsage, "address %q: the path of a socket is absolute, as in unix:///run/muster.sock", a)
		}
		return a, nil
	}
	host, port, err := net.SplitHostPort(a)
	if err != nil {
		host, port = strings.Trim(a, "[]"), DefaultPort
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return "", muster.Errorf(muster.KindUsage, "address %q is neither host, host:port nor unix:///path", a)
		}
	}
	if host == "" || port == "" || strings.ContainsAny(host, "/ ") {
		return "", muster.Errorf(muster.KindUsage, "address %q is neither host, host:port nor unix:///path", a)
	}
	return net.JoinHostPort(host, port), nil
}

// candidates lists the addresses to try, the best first: who answered last, then the leader, then the others.
func (c *Client) candidates() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := []string{c.current}
	for _, a := range append([]string{c.leader}, c.given...) {
		if a != "" && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}

func (c *Client) answered(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = address
}

// leads remembers where the leader is, for the next call. Not for a client of a unix socket: there, and only there, the server
// sees who calls.
func (c *Client) leads(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if address != "" && address != c.avoided && !strings.HasPrefix(c.current, unixScheme) {
		c.leader, c.current = address, address
	}
}

// unreachable remembers an address that a server named and that can't be reached from here.
func (c *Client) unreachable(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if address == c.leader && !slices.Contains(c.given, address) {
		c.leader, c.avoided = "", address
		if c.current == address {
			c.current = c.given[0]
		}
	}
}

// call makes a unary call, at another server and again while none answers or none leads. The request must bear being made
// twice: one that changes something carries an id.
func call[In, Out any](ctx context.Context, c *Client, in In,
	method func(wire.MusterClient, context.Context, In, ...grpc.CallOption) (Out, error)) (Out, error) {
	var out Out
	o := c.outage()
	defer o.end()
	shown := c.newest(out)
	err := o.try(ctx, func(ctx context.Context, address string) error {
		conn, err := c.connections.to(address)
		if err != nil {
			return err
		}
		// A server that hangs takes its time, and no more, before another is asked.
		ctx, cancel := context.WithTimeout(ctx, o.limit())
		defer cancel()
		if out, err = method(wire.NewMusterClient(conn), ctx, in); err != nil {
			return wire.FromStatus(err)
		}
		if read := c.newest(out); read.Before(shown) {
			return muster.Errorf(muster.KindUnavailable, "%s is behind what was shown before: it is at %s, that was %s", address, read, shown)
		}
		return nil
	})
	return out, err
}

// newest notes the version that an answer was read from, and gives it; of one without, the newest noted. Stale answers of
// lagging servers are told by it: what a client shows never goes back.
func (c *Client) newest(answer any) muster.Version {
	c.mu.Lock()
	defer c.mu.Unlock()
	versioned, ok := answer.(interface{ GetVersion() *wire.Version })
	if !ok || versioned.GetVersion() == nil {
		return c.seen
	}
	v := versionOf(versioned.GetVersion())
	if c.seen.Before(v) {
		c.seen = v
	}
	return v
}

// Submit makes jobs, all or none, and learns where the leader is.
func (c *Client) Submit(ctx context.Context, r *wire.SubmitRequest) (*wire.SubmitReply, error) {
	name(&r.RequestId)
	reply, err := call(ctx, c, r, wire.MusterClient.Submit)
	if err == nil {
		c.leads(reply.Leader)
	}
	return reply, err
}

// Cancel asks jobs to stop; it returns when that is acknowledged, not when they have stopped.
func (c *Client) Cancel(ctx context.Context, r *wire.CancelRequest) (_ *wire.NotesReply, err error) {
	name(&r.RequestId)
	if r.Jobs, err = c.resolve(ctx, r.Jobs); err != nil {
		return nil, err
	}
	return call(ctx, c, r, wire.MusterClient.Cancel)
}

// Release lets held jobs go on.
func (c *Client) Release(ctx context.Context, r *wire.ReleaseRequest) (_ *wire.NotesReply, err error) {
	name(&r.RequestId)
	if r.Jobs, err = c.resolve(ctx, r.Jobs); err != nil {
		return nil, err
	}
	return call(ctx, c, r, wire.MusterClient.Release)
}

// ListJobs gives one page of jobs.
func (c *Client) ListJobs(ctx context.Context, r *wire.ListJobsRequest) (*wire.ListJobsReply, error) {
	return call(ctx, c, r, wire.MusterClient.ListJobs)
}

// GetJob describes one job.
func (c *Client) GetJob(ctx context.Context, r *wire.GetJobRequest) (*wire.JobInfo, error) {
	return call(ctx, c, r, wire.MusterClient.GetJob)
}

// Why explains one job.
func (c *Client) Why(ctx context.Context, r *wire.WhyRequest) (*wire.WhyReply, error) {
	return call(ctx, c, r, wire.MusterClient.Why)
}

// ListNodes lists nodes by name.
func (c *Client) ListNodes(ctx context.Context, r *wire.ListNodesRequest) (*wire.ListNodesReply, error) {
	return call(ctx, c, r, wire.MusterClient.ListNodes)
}

// DrainNodes stops new starts on nodes.
func (c *Client) DrainNodes(ctx context.Context, r *wire.DrainRequest) (*wire.NotesReply, error) {
	name(&r.RequestId)
	return call(ctx, c, r, wire.MusterClient.DrainNodes)
}

// UndrainNodes takes a drain back.
func (c *Client) UndrainNodes(ctx context.Context, r *wire.UndrainRequest) (*wire.NotesReply, error) {
	name(&r.RequestId)
	return call(ctx, c, r, wire.MusterClient.UndrainNodes)
}

// FenceNode takes an operator's word that a machine is off.
func (c *Client) FenceNode(ctx context.Context, r *wire.FenceRequest) (*wire.NotesReply, error) {
	name(&r.RequestId)
	return call(ctx, c, r, wire.MusterClient.FenceNode)
}

// ListServers lists the servers; each answers for itself.
func (c *Client) ListServers(ctx context.Context, r *wire.ListServersRequest) (*wire.ListServersReply, error) {
	return call(ctx, c, r, wire.MusterClient.ListServers)
}

// name gives a request an id when it has none, so that all tries of it are one request.
func name(requestID *string) {
	if *requestID == "" {
		*requestID = rand.Text()
	}
}

// resolve turns names into numbers, before what they mean can change between two tries of one request.
func (c *Client) resolve(ctx context.Context, refs []*wire.JobRef) ([]*wire.JobRef, error) {
	resolved := make([]*wire.JobRef, len(refs))
	for i, ref := range refs {
		resolved[i] = ref
		if ref.GetId() != 0 {
			continue
		}
		job, err := c.GetJob(ctx, &wire.GetJobRequest{Job: ref})
		if err != nil {
			return nil, err
		}
		resolved[i] = &wire.JobRef{Id: job.Id}
	}
	return resolved, nil
}
