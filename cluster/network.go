package cluster

import (
	"context"
	"log"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Network is how a server, or a worker's place in gossip, reaches others. The zero value is the network as it is; development
// puts one here that it can cut.
type Network struct {
	// Dial connects to an address, for raft and for gossip's streams; nil: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Loses says of a gossip packet, to or from an address, whether it is lost; nil: none is.
	Loses func(address string) bool
}

// dial connects within a limit.
func (n Network) dial(address string, limit time.Duration) (net.Conn, error) {
	if n.Dial == nil {
		return net.DialTimeout("tcp", address, limit)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return n.Dial(ctx, address)
}

// gossipTransport is memberlist's own over a network that may lose packets and refuse connections.
type gossipTransport struct {
	*memberlist.NetTransport
	network Network
	packets chan *memberlist.Packet
	done    chan struct{}
	wait    sync.WaitGroup
}

// transport gives memberlist's transport for a network, nil for the one that it makes itself, and the port it is bound to.
func (n Network) transport(host string, port int, logger *log.Logger) (memberlist.Transport, int, error) {
	if n.Dial == nil && n.Loses == nil {
		return nil, port, nil
	}
	inner, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{host}, BindPort: port, Logger: logger})
	if err != nil {
		return nil, 0, err
	}
	t := &gossipTransport{NetTransport: inner, network: n, packets: make(chan *memberlist.Packet), done: make(chan struct{})}
	t.wait.Go(t.receive)
	return t, inner.GetAutoBindPort(), nil
}

func (t *gossipTransport) loses(address string) bool {
	return t.network.Loses != nil && t.network.Loses(address)
}

func (t *gossipTransport) receive() {
	for {
		select {
		case <-t.done:
			return
		case p := <-t.NetTransport.PacketCh():
			if t.loses(p.From.String()) {
				continue
			}
			select {
			case t.packets <- p:
			case <-t.done:
				return
			}
		}
	}
}

func (t *gossipTransport) PacketCh() <-chan *memberlist.Packet { return t.packets }

func (t *gossipTransport) WriteTo(b []byte, address string) (time.Time, error) {
	return t.WriteToAddress(b, memberlist.Address{Addr: address})
}

func (t *gossipTransport) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	if t.loses(to.Addr) {
		return time.Now(), nil
	}
	return t.NetTransport.WriteToAddress(b, to)
}

func (t *gossipTransport) DialTimeout(address string, limit time.Duration) (net.Conn, error) {
	return t.network.dial(address, limit)
}

func (t *gossipTransport) DialAddressTimeout(to memberlist.Address, limit time.Duration) (net.Conn, error) {
	return t.network.dial(to.Addr, limit)
}

func (t *gossipTransport) Shutdown() error {
	close(t.done)
	t.wait.Wait()
	return t.NetTransport.Shutdown()
}

var _ memberlist.NodeAwareTransport = (*gossipTransport)(nil)
