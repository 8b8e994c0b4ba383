//go:build chaos

package chaos

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// network is the addresses that are used, inside namespaces of our own only: 10.77.0.0/24.
var network = net.IPv4(10, 77, 0, 0).To4()

// Network is hosts, each a network namespace of its own with one device, whose packets this process carries to each other. It
// needs no more of the kernel than namespaces and tun devices.
type Network struct {
	hosts map[string]*Host
	at    [256]atomic.Pointer[Host]
	table atomic.Pointer[map[link]Quality]

	mu     sync.Mutex
	rules  map[int]Rule
	next   int
	random *rand.Rand
	last   map[link]time.Time // when the last packet in order is due
	queue  delays
	number uint64
	wake   chan struct{}
	closed chan struct{}
	wait   sync.WaitGroup
}

// Host is one namespace of the network.
type Host struct {
	Name string
	IP   string
	last byte
	ns   *os.File
	id   string // of the namespace, as links in /proc show it
	tun  *os.File
}

// NewNetwork makes a network without hosts. What it does to packets follows from the seed and from their order.
func NewNetwork(seed uint64) *Network {
	n := &Network{
		hosts: map[string]*Host{}, rules: map[int]Rule{}, random: rand.New(rand.NewPCG(seed, 1)), last: map[link]time.Time{},
		wake: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	n.table.Store(&map[link]Quality{})
	n.wait.Go(n.deliverLate)
	return n
}

// AddHost makes a namespace whose device has the address 10.77.0.LAST.
func (n *Network) AddHost(name string, last byte) (*Host, error) {
	h := &Host{Name: name, last: last, IP: net.IPv4(network[0], network[1], network[2], last).String()}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread is in another namespace, and ends with this goroutine
		done <- h.make()
	}()
	if err := <-done; err != nil {
		return nil, fmt.Errorf("host %s: %w", name, err)
	}
	n.hosts[name] = h
	n.at[last].Store(h)
	n.wait.Go(func() { n.carryFrom(h) })
	return h, nil
}

func (h *Host) make() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("a network namespace: %w (this needs root)", err)
	}
	var err error
	if h.ns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return err
	}
	if h.id, err = os.Readlink("/proc/thread-self/ns/net"); err != nil {
		return err
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("/dev/net/tun: %w (this needs a kernel with tun devices)", err)
	}
	device, err := unix.NewIfreq("net0")
	if err != nil {
		return err
	}
	device.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, device); err != nil {
		return fmt.Errorf("a tun device: %w", err)
	}
	h.tun = os.NewFile(uintptr(fd), "tun "+h.Name)
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0) // what IPv6 says is carried nowhere anyway
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	address := func(request uint, ip net.IP) error {
		r, _ := unix.NewIfreq("net0")
		if err := r.SetInet4Addr(ip.To4()); err != nil {
			return err
		}
		return unix.IoctlIfreq(socket, request, r)
	}
	up := func(name string) error {
		r, _ := unix.NewIfreq(name)
		r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, r)
	}
	return errors.Join(address(unix.SIOCSIFADDR, net.ParseIP(h.IP)), address(unix.SIOCSIFNETMASK, net.IPv4(255, 255, 255, 0)),
		up("net0"), up("lo"))
}

// Dialer gives a function that connects from a host.
func (h *Host) Dialer() func(ctx context.Context, address string) (net.Conn, error) {
	type answer struct {
		conn net.Conn
		err  error
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		done := make(chan answer, 1)
		go func() {
			runtime.LockOSThread() // for good, as above: a socket belongs to the namespace of the thread that makes it
			if err := unix.Setns(int(h.ns.Fd()), unix.CLONE_NEWNET); err != nil {
				done <- answer{err: err}
				return
			}
			var d net.Dialer
			conn, err := d.DialContext(ctx, "tcp4", address)
			done <- answer{conn, err}
		}()
		a := <-done
		return a.conn, a.err
	}
}

// Impose makes links worse until the function it gives is called.
func (n *Network) Impose(rules ...Rule) (lift func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var ids []int
	for _, r := range rules {
		n.next++
		n.rules[n.next] = r
		ids = append(ids, n.next)
	}
	n.tabulate()
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, id := range ids {
			delete(n.rules, id)
		}
		n.tabulate()
	}
}

func (n *Network) tabulate() {
	var rules []Rule
	for id := range n.next + 1 {
		if r, ok := n.rules[id]; ok {
			rules = append(rules, r)
		}
	}
	table := tabulate(rules, func(name string) byte { return n.hosts[name].last })
	n.table.Store(&table)
}

// Names lists the hosts.
func (n *Network) Names() []string {
	var names []string
	for name := range n.hosts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

const largestPacket = 65536

// carryFrom carries what a host sends, until its device is closed.
func (n *Network) carryFrom(h *Host) {
	packet := make([]byte, largestPacket)
	for {
		size, err := h.tun.Read(packet)
		if err != nil {
			return
		}
		l, ok := linkOf(packet[:size])
		if !ok {
			continue
		}
		quality, worse := (*n.table.Load())[l]
		if !worse {
			n.deliver(l.to, packet[:size])
			continue
		}
		n.delay(l, quality, packet[:size])
	}
}

func (n *Network) deliver(to byte, packet []byte) {
	if h := n.at[to].Load(); h != nil {
		_, _ = h.tun.Write(packet) // a device whose queue is full loses packets, as networks do
	}
}

func (n *Network) delay(l link, q Quality, packet []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	copies, ordered := q.copies(n.random)
	for _, after := range copies {
		due := time.Now().Add(after)
		if ordered {
			if last := n.last[l]; due.Before(last) {
				due = last
			}
			n.last[l] = due
		}
		n.number++
		heap.Push(&n.queue, delayed{due, n.number, l.to, slices.Clone(packet)})
	}
	if len(copies) > 0 {
		select {
		case n.wake <- struct{}{}:
		default:
		}
	}
}

func (n *Network) deliverLate() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		n.mu.Lock()
		wait := time.Hour
		for len(n.queue) > 0 {
			if wait = time.Until(n.queue[0].due); wait > 0 {
				break
			}
			d := heap.Pop(&n.queue).(delayed)
			n.deliver(d.to, d.packet)
			wait = time.Hour
		}
		n.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-n.closed:
			return
		case <-n.wake:
		case <-timer.C:
		}
	}
}

// Close ends the network. Processes in its namespaces must have ended.
func (n *Network) Close() error {
	close(n.closed)
	var err error
	for _, h := range n.hosts {
		err = errors.Join(err, h.tun.Close(), h.ns.Close())
	}
	n.wait.Wait()
	return err
}
