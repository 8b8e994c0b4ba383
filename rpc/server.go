package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

const (
	// hold is how long a server keeps a request that needs a leader while there is none (design: held up to 5 s).
	hold = 5 * time.Second
	// drain is how long a stopping server lets answers that are under way finish.
	drain = 2 * time.Second
	// maxMessage bounds what a server reads as one message: a command of at most maxCommand, and what is around it.
	maxMessage = 8 << 20
	// maxCommand bounds one command: it must fit into one log entry.
	maxCommand = 4 << 20
)

// Config is what a Server needs. Local is required, the rest has defaults.
type Config struct {
	Local  Local
	Logger hclog.Logger // nil: silent
	User   string       // the agent's own user: who calls over TCP
	// Checkpoints is the folder, the same on all nodes, in which jobs keep what outlives an attempt; "": each node's own disk.
	Checkpoints string
	// Dial connects to another server's or a worker's RPC address; nil: TCP, or a unix socket for "unix:///path".
	Dial func(ctx context.Context, address string) (net.Conn, error)
	TLS  *tls.Config // towards other servers and workers; nil: plaintext
	// Metrics answers GET /metrics; nil: there are none.
	Metrics http.Handler
	// ParseJobs reads a job file for POST /v1/jobs, away from this process; nil: job files are refused. An error that is
	// not about the file comes without diagnostics.
	ParseJobs func(ctx context.Context, source string, variables map[string]string) ([]*muster.JobSpec, []wire.DiagnosticJSON, error)
}

// Server offers the services Muster, Peers and Workers, and the HTTP API, on the listeners it is given.
type Server struct {
	wire.UnimplementedMusterServer
	local   Local
	log     hclog.Logger
	user    string
	shared  string // where checkpoints are kept; "" = each node's own disk
	grpc    *grpc.Server
	http    *http.Server
	servers *connections // to other servers
	workers *connections // to workers' log services
	leader  *leaderRouter
	groups  *groupBook
	reads   *batcher[struct{}, muster.Index]
	renew   *batcher[*wire.NodeRenew, bool]
	streams sessions
	metrics *metrics
	scrape  http.Handler
	parse   func(context.Context, string, map[string]string) ([]*muster.JobSpec, []wire.DiagnosticJSON, error)
	parsing chan struct{} // a place for each parse under way

	closing context.Context // done once Stop was called: every stream ends then
	close   context.CancelFunc
	running sync.WaitGroup // goroutines that belong to no request
}

// NewServer makes a server that serves nothing until Serve or ServeHTTP is called. Stop releases it.
func NewServer(config Config) *Server {
	if config.Logger == nil {
		config.Logger = hclog.NewNullLogger()
	}
	closing, cancel := context.WithCancel(context.Background())
	s := &Server{local: config.Local, log: config.Logger, user: config.User, shared: config.Checkpoints, closing: closing, close: cancel}
	s.metrics, s.scrape = newMetrics(), config.Metrics
	s.parse, s.parsing = config.ParseJobs, make(chan struct{}, parsesAtOnce)
	s.servers = newConnections(toServer(config.Dial, config.TLS))
	s.workers = newConnections(toWorker(config.Dial, config.TLS))
	s.leader = newLeaderRouter(s)
	s.groups = newGroupBook(groupsHere)
	s.reads = newBatcher(s, s.readIndexOnce)
	s.renew = newBatcher(s, s.renewOnce)
	s.grpc = grpc.NewServer(
		grpc.Creds(&callerCredentials{user: config.User}),
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.stream),
		grpc.UnknownServiceHandler(unknown),
		grpc.NumStreamWorkers(128), // goroutines that stay, with stacks that have grown
		grpc.WaitForHandlers(true),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(maxAnswer),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Second, Timeout: time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	wire.RegisterMusterServer(s.grpc, s)
	wire.RegisterPeersServer(s.grpc, &peersService{local: s.local})
	wire.RegisterWorkersServer(s.grpc, &workersService{server: s})
	s.http = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ConnContext:       s.httpCaller,
		ErrorLog:          s.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	return s
}

// Serve answers gRPC on l, which it closes, until Stop. secure may be nil: plaintext.
func (s *Server) Serve(l net.Listener, secure *tls.Config) error {
	err := s.grpc.Serve(listenFor(l, secure))
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// ServeHTTP answers the HTTP API on l, which it closes, until Stop. secure may be nil: plaintext.
func (s *Server) ServeHTTP(l net.Listener, secure *tls.Config) error {
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	err := s.http.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Stop ends every stream (clients and workers go on at another server), lets answers under way finish for at most two
// seconds, and returns when nothing of the server runs any more.
func (s *Server) Stop() {
	s.close()
	limit, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	forced := context.AfterFunc(limit, s.grpc.Stop)
	s.grpc.GracefulStop()
	forced()
	if s.http.Shutdown(limit) != nil {
		_ = s.http.Close()
	}
	s.running.Wait()
	s.servers.close()
	s.workers.close()
}

// errStopping is what a stream or a held request ends with when its server stops: tried again, it finds another server.
var errStopping = muster.Errorf(muster.KindUnavailable, "this server is shutting down")
