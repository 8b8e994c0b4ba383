package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/wire"
)

func (a *app) devPartitionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "partition SIDE…", Short: "cut the network between servers and workers, until dev heal",
		Long: "Each SIDE is a name, or some joined by commas, and reaches none of the other sides; whoever isn't named is on a side together.\n" +
			"\"leader\" is the server that leads. Connections fall silent both ways, and break after 3 s, as on a real network; gossip's\n" +
			"packets are lost. You still reach every server, and what tasks say to each other is not cut. Another partition replaces this one.",
		Example: "  muster dev partition leader          the leader alone\n" +
			"  muster dev partition w1 w2           w1 alone, w2 alone, all others together\n" +
			"  muster dev partition s1,w1,w2        two halves",
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.devCut(cmd.Context(), "/partition", url.Values{"side": args})
		},
	}
}

func (a *app) devHealCommand() *cobra.Command {
	return &cobra.Command{
		Use: "heal", Short: "end what dev partition has cut", Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.devCut(cmd.Context(), "/heal", nil) },
	}
}

func (a *app) devCut(ctx context.Context, path string, query url.Values) error {
	record, err := readDevRecord()
	if err != nil {
		return err
	}
	var answer string
	if err := record.call(ctx, "POST", path, query, &answer); err != nil {
		return err
	}
	fmt.Fprintf(a.io.err, "muster dev: %s\n", answer)
	return nil
}

// partition cuts the network between sides, each some names joined by commas, and all others. It gives the sides, as people read them.
func (c *devCluster) partition(texts []string, leader func() (string, error)) (string, error) {
	all := c.all()
	left := make([]string, len(all))
	for i, a := range all {
		left[i] = a.name
	}
	var sides [][]string
	for _, text := range texts {
		var side []string
		for _, name := range strings.Split(text, ",") {
			if name == "leader" {
				address, err := leader()
				if err != nil {
					return "", err
				}
				name = c.nameOf(address)
			}
			if _, err := c.find(name); err != nil {
				return "", err
			}
			at := slices.Index(left, name)
			if at < 0 {
				return "", muster.Errorf(muster.KindUsage, "%s can't be on two sides", name)
			}
			left = slices.Delete(left, at, at+1)
			side = append(side, name)
		}
		sides = append(sides, side)
	}
	if len(left) > 0 {
		sides = append(sides, left)
	}
	if len(sides) < 2 {
		return "", muster.Errorf(muster.KindUsage, "all are on one side, so nothing is cut")
	}
	var words []string
	for _, side := range sides {
		words = append(words, strings.Join(side, " "))
	}
	return "cut: " + strings.Join(words, " | ") + "; muster dev heal ends it", c.cutInto(sides)
}

// heal ends what partition has cut.
func (c *devCluster) heal() (string, error) {
	if !c.isCut() {
		return "nothing was cut", nil
	}
	return "healed: all reach each other", c.cutInto(nil)
}

// cutInto tells every agent what it does not reach from now on, and waits until that is so. One that doesn't run is told when it
// starts.
func (c *devCluster) cutInto(sides [][]string) error {
	c.mu.Lock()
	c.sides = sides
	c.cutNumber++
	c.mu.Unlock()
	return c.tellCuts()
}

func (c *devCluster) tellCuts() error {
	agents := c.all()
	failed := make([]error, len(agents))
	var telling sync.WaitGroup
	for i, a := range agents {
		a.mu.Lock()
		pipe := a.pipe
		a.mu.Unlock()
		if pipe != nil {
			telling.Go(func() {
				if err := pipe.tell(c.order(a)); err != nil {
					failed[i] = fmt.Errorf("%s: %w", a.name, err)
				}
			})
		}
	}
	telling.Wait()
	return errors.Join(failed...)
}

func (c *devCluster) isCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sides != nil
}

// sideOf gives the side that an agent is on, nil while nothing is cut. One that came later is with those that weren't named.
func (c *devCluster) sideOf(name string) []string {
	for _, side := range c.sides {
		if slices.Contains(side, name) {
			return side
		}
	}
	if len(c.sides) == 0 {
		return nil
	}
	return c.sides[len(c.sides)-1]
}

// order is what an agent shall not reach.
func (c *devCluster) order(a *devAgent) cutOrder {
	c.mu.Lock()
	defer c.mu.Unlock()
	order := cutOrder{Number: c.cutNumber}
	if c.sides == nil {
		return order
	}
	mine := c.sideOf(a.name)
	for _, other := range c.agents {
		if side := c.sideOf(other.name); &side[0] != &mine[0] {
			order.Cut = append(order.Cut, other.rpc, other.gossip)
		}
	}
	return order
}

// cutPipe is the pipe to a running agent.
type cutPipe struct {
	mu      sync.Mutex
	orders  *os.File
	answers *os.File
	lines   *bufio.Reader
}

// obeyWithin bounds how long an agent may take to do what it is told; one that has just started reads its files first.
const obeyWithin = 5 * time.Second

// plug gives an agent that is about to start its pipe, with what is in force on it already. release lets go of the agent's ends
// once it runs, unplug of ours when it has ended.
func (c *devCluster) plug(a *devAgent, command *exec.Cmd) (release, unplug func(), err error) {
	orders, toAgent, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	fromAgent, answers, err := os.Pipe()
	if err != nil {
		return nil, nil, errors.Join(err, orders.Close(), toAgent.Close())
	}
	pipe := &cutPipe{orders: toAgent, answers: fromAgent, lines: bufio.NewReader(fromAgent)}
	command.ExtraFiles = []*os.File{orders, answers}
	// Who tells the agent something from now on finds the pipe, and waits for an answer only once there is an order to answer.
	pipe.mu.Lock()
	defer pipe.mu.Unlock()
	a.mu.Lock()
	a.pipe = pipe
	a.mu.Unlock()
	release = sync.OnceFunc(func() { orders.Close(); answers.Close() })
	unplug = func() {
		a.mu.Lock()
		a.pipe = nil
		a.mu.Unlock()
		toAgent.Close()
		fromAgent.Close()
	}
	return release, unplug, pipe.write(c.order(a))
}

func (p *cutPipe) send(order cutOrder) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.write(order)
}

// write is send for who holds the lock.
func (p *cutPipe) write(order cutOrder) error {
	line, err := json.Marshal(order)
	if err == nil {
		_, err = p.orders.Write(append(line, '\n'))
	}
	return err
}

// tell gives an order and waits until it is in force. An agent that ends meanwhile has no part in the network.
func (p *cutPipe) tell(order cutOrder) error {
	if p.send(order) != nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.answers.SetReadDeadline(time.Now().Add(obeyWithin)) // a pipe has deadlines
	for {
		line, err := p.lines.ReadString('\n')
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("it does not answer within %s: it will be as told when it goes on", obeyWithin)
		}
		if err != nil {
			return nil
		}
		if n, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && n >= order.Number {
			return nil
		}
	}
}

// leads gives the address of the server that leads. While the network is cut each side may know another one: the newest term's it is.
func (c *devCluster) leads(ctx context.Context, client *rpc.Client) (string, error) {
	if !c.isCut() {
		return leaderOf(ctx, client)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var mu sync.Mutex
	var newest *wire.ServerInfo
	var asking sync.WaitGroup
	for _, address := range c.addresses() {
		asking.Go(func() {
			conn, closer, err := rpc.WorkerDial(nil, nil)(ctx, address)
			if err != nil {
				return
			}
			defer closer.Close()
			s, err := wire.NewPeersClient(conn).Status(ctx, &wire.StatusRequest{})
			mu.Lock()
			defer mu.Unlock()
			if err == nil && s.GetLeader() && s.GetTerm() >= newest.GetTerm() {
				newest = s
			}
		})
	}
	asking.Wait()
	if newest == nil {
		return "", errors.New("no server leads just now")
	}
	return newest.GetAddress(), nil
}
