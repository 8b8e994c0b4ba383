// Command train trains a small model of letters with several processes, one for each rank of a muster job. Each takes its part of
// every batch; the gradients are added up by a ring all-reduce over TCP, so that all hold the same model after every step. It
// finds its peers by the environment, saves what it learnt every so many steps and when it is asked to, and goes on from there.
//
// It is an example of how a program uses what muster gives it, in a page for each of: the ring (ring.go), the model (model.go),
// checkpoints (checkpoint.go).
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	var s settings
	flag.StringVar(&s.text, "text", "text.txt", "what to learn from")
	flag.IntVar(&s.steps, "steps", 600, "when to stop")
	flag.IntVar(&s.every, "every", 50, "steps between checkpoints")
	flag.IntVar(&s.batch, "batch", 64, "places in the text that each rank looks at in a step")
	flag.Float64Var(&s.rate, "rate", 0.5, "how far a step goes")
	flag.Parse()
	if err := train(s); err != nil {
		fmt.Fprintln(os.Stderr, "train:", err)
		os.Exit(1)
	}
}

type settings struct {
	text         string
	steps, every int
	batch        int
	rate         float64
}

// place is what muster tells a rank: who it is, where the others are, where to save, and where it is asked to.
type place struct {
	rank, ranks int
	ip          string
	master      string // host:port, where rank 0 listens
	checkpoints string
	stopFile    string
}

func placeFromEnvironment() (place, error) {
	p := place{
		master:      net.JoinHostPort(os.Getenv("MUSTER_MASTER_ADDR"), os.Getenv("MUSTER_MASTER_PORT")),
		checkpoints: os.Getenv("MUSTER_CHECKPOINT_DIR"),
		stopFile:    os.Getenv("MUSTER_STOP_FILE"),
	}
	var err1, err2 error
	p.rank, err1 = strconv.Atoi(os.Getenv("MUSTER_RANK"))
	p.ranks, err2 = strconv.Atoi(os.Getenv("MUSTER_RANKS"))
	ips := strings.Split(os.Getenv("MUSTER_NODE_IPS"), ",")
	if err1 != nil || err2 != nil || p.rank < 0 || p.rank >= len(ips) {
		return p, fmt.Errorf("this is a program for a muster job: muster run train.hcl")
	}
	p.ip = ips[p.rank]
	return p, nil
}

// askedToStop is the first word of the stop file: why the job is asked to save itself; "" while it is not.
func (p place) askedToStop() string {
	text, err := os.ReadFile(p.stopFile)
	if err != nil {
		return ""
	}
	why, _, _ := strings.Cut(string(text), " ")
	return why
}

func train(s settings) error {
	p, err := placeFromEnvironment()
	if err != nil {
		return err
	}
	letters, err := readLetters(s.text)
	if err != nil {
		return err
	}
	ring, err := join(p)
	if err != nil {
		return err
	}
	defer ring.close()

	m := newModel()
	saved := checkpoint{Parameters: m.parameters}
	if p.rank == 0 {
		if saved, err = newest(p.checkpoints, saved); err != nil {
			return err
		}
	}
	if err := ring.broadcast(&saved); err != nil {
		return err
	}
	copy(m.parameters, saved.Parameters)
	say := func(format string, args ...any) {
		if p.rank == 0 {
			fmt.Printf(format+"\n", args...)
		}
	}
	if saved.Step > 0 {
		say("resumed at step %d", saved.Step)
	} else {
		say("%d parameters, %d letters, %d ranks", len(m.parameters), len(letters), p.ranks)
	}

	// What the ranks add up in a step: the gradient, the loss, and how many of them were asked to stop.
	sum := make([]float64, len(m.parameters)+2)
	gradient, loss, stop := sum[:len(m.parameters)], &sum[len(m.parameters)], &sum[len(m.parameters)+1]
	began, from := time.Now(), saved.Step
	for step := saved.Step; ; {
		clear(sum)
		// Which places a rank looks at follows from the step alone: a run that was interrupted learns what an unbroken one does.
		draw := rand.New(rand.NewPCG(uint64(step), uint64(p.rank)))
		for range s.batch {
			*loss += m.learn(letters, draw.IntN(len(letters)-context), gradient)
		}
		if p.askedToStop() != "" {
			*stop = 1
		}
		if err := ring.add(sum); err != nil {
			return err
		}
		n := float64(s.batch * p.ranks)
		for i := range gradient {
			m.parameters[i] -= s.rate * gradient[i] / n
		}
		step++
		done, asked := step >= s.steps, *stop > 0
		if step == 1 || step%s.every == 0 || done {
			say("step %d loss %.3f", step, *loss/n)
		}
		if p.rank == 0 && (step%s.every == 0 || done || asked) {
			if err := save(p.checkpoints, checkpoint{step, m.parameters}); err != nil {
				return err
			}
		}
		switch {
		case done:
			say("done: %.0f steps a second", float64(step-from)/time.Since(began).Seconds())
			return nil
		case asked:
			say("asked to stop (%s): saved at step %d", p.askedToStop(), step)
			return nil
		}
	}
}
