//go:build chaos

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/musterhpc/muster/wire"
)

// clients is the name of the host that clients are on.
const clients = "clients"

// World is a cluster in a network of its own: servers s1…, workers w1… with simulated GPUs, and a host for clients.
type World struct {
	Dir      string // of everything that is left behind
	Net      *Network
	Machines map[string]*Machine
	Servers  []string
	Workers  []string
	dial     func(ctx context.Context, address string) (net.Conn, error)
	binary   string
	say      func(format string, args ...any)

	mu      sync.Mutex
	leader  string // as last seen
	twin    *Host
	twinned bool // a twin runs
	twins   []*Machine
	peers   map[string]*grpc.ClientConn
}

const gpusPerWorker = 8

// NewWorld makes the network and the machines, and turns them on.
func NewWorld(dir, binary string, seed uint64, servers, workers int, say func(string, ...any)) (w *World, err error) {
	w = &World{Dir: dir, Net: NewNetwork(seed), Machines: map[string]*Machine{}, binary: binary, say: say, peers: map[string]*grpc.ClientConn{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	host, err := w.Net.AddHost(clients, 254)
	if err != nil {
		return w, err
	}
	w.dial = host.Dialer()
	if w.twin, err = w.Net.AddHost(twinHost, 200); err != nil {
		return w, err
	}
	join := "join = ["
	for i := range servers {
		w.Servers = append(w.Servers, fmt.Sprintf("s%d", i+1))
		join += fmt.Sprintf("%q, ", w.address(i+1, gossipPort))
	}
	join += "]\n"
	for i, name := range w.Servers {
		config := join + fmt.Sprintf("server {\n  expect = %d\n  voters = %d\n}\n", servers, servers)
		if err := w.add(name, byte(i+1), config, true); err != nil {
			return w, err
		}
		if i == 0 {
			continue // it keeps its whole log, so that all of it can be looked at in the end
		}
		if err := w.Machines[name].Fault("compact", "often"); err != nil {
			return w, err
		}
	}
	for i := range workers {
		w.Workers = append(w.Workers, fmt.Sprintf("w%d", i+1))
		if err := w.add(w.Workers[i], byte(101+i), join+workerConfig, false); err != nil {
			return w, err
		}
	}
	for _, m := range w.Machines {
		if err := m.On(); err != nil {
			return w, err
		}
	}
	return w, nil
}

var workerConfig = fmt.Sprintf(`worker {
  allow_root = true
  gpus {
    simulate = %d
    model    = "H100"
    cores    = 32
    memory   = "64GiB"
  }
}
`, gpusPerWorker)

func (w *World) add(name string, last byte, config string, server bool) error {
	host, err := w.Net.AddHost(name, last)
	if err != nil {
		return err
	}
	m, err := NewMachine(host, filepath.Join(w.Dir, name), w.binary, config, server, w.say)
	if m != nil {
		w.Machines[name] = m
	}
	return err
}

func (w *World) address(last, port int) string {
	return fmt.Sprintf("%d.%d.%d.%d:%d", network[0], network[1], network[2], last, port)
}

// RPC is a server's address.
func (w *World) RPC(name string) string { return w.Machines[name].IP + ":4691" }

// Peer gives a connection to one server, whoever leads.
func (w *World) Peer(name string) (*grpc.ClientConn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if conn := w.peers[name]; conn != nil {
		return conn, nil
	}
	conn, err := grpc.NewClient("passthrough:///"+w.RPC(name), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(w.dial), grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
	if err == nil {
		w.peers[name] = conn
	}
	return conn, err
}

// Status asks one server what it knows of itself.
func (w *World) Status(ctx context.Context, name string) (*wire.ServerInfo, error) {
	conn, err := w.Peer(name)
	if err != nil {
		return nil, err
	}
	return wire.NewPeersClient(conn).Status(ctx, &wire.StatusRequest{})
}

// Leader names the server that leads, or did when one was last seen.
func (w *World) Leader() string {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	var mu sync.Mutex
	var wait sync.WaitGroup
	newest, name := uint64(0), ""
	for _, s := range w.Servers {
		wait.Go(func() {
			info, err := w.Status(ctx, s)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && info.Leader && info.Term >= newest {
				newest, name = info.Term, s
			}
		})
	}
	wait.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if name == "" {
		name = w.leader
	}
	if name == "" {
		name = w.Servers[0]
	}
	w.leader = name
	return name
}

// all are the machines, and the twins that there were.
func (w *World) all() []*Machine {
	return slices.Concat(slices.Collect(maps.Values(w.Machines)), w.twins)
}

// Close ends everything. It may be called at any time, also of a world that is half made.
func (w *World) Close() error {
	w.mu.Lock()
	for _, conn := range w.peers {
		_ = conn.Close() // nothing is on its way that anybody waits for
	}
	w.mu.Unlock()
	var err error
	for _, m := range w.all() {
		err = errors.Join(err, m.Close())
	}
	removeCgroups()
	return errors.Join(err, w.Net.Close())
}

// evidence is the folder of what is judged.
func (w *World) evidence() string { return filepath.Join(w.Dir, "evidence") }

func makeFolders(dir string) error {
	return os.MkdirAll(filepath.Join(dir, "evidence", "beats"), 0o777)
}
