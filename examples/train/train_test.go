package main

import (
	"math"
	"net"
	"reflect"
	"sync"
	"testing"
)

// inRing runs f as each rank of a ring on loopback.
func inRing(t *testing.T, ranks int, f func(rank int, r *ring) error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	master := l.Addr().String()
	l.Close()
	var wait sync.WaitGroup
	for rank := range ranks {
		wait.Go(func() {
			r, err := join(place{rank: rank, ranks: ranks, ip: "127.0.0.1", master: master})
			if err == nil {
				defer r.close()
				err = f(rank, r)
			}
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	wait.Wait()
}

func TestARingAddsUpWhatItsRanksHold(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 5} {
		const values = 11 // less than some part of it for each rank, and no multiple
		results := make([][]float64, ranks)
		inRing(t, ranks, func(rank int, r *ring) error {
			for i := range values {
				results[rank] = append(results[rank], float64(i+1)*math.Pow(0.1, float64(rank)))
			}
			return r.add(results[rank])
		})
		for i := range values {
			want := 0.0
			for rank := range ranks {
				want += float64(i+1) * math.Pow(0.1, float64(rank))
			}
			if got := results[0][i]; math.Abs(got-want) > 1e-12 {
				t.Errorf("%d ranks: value %d is %v, not %v", ranks, i, got, want)
			}
		}
		for rank := range ranks {
			if !reflect.DeepEqual(results[rank], results[0]) {
				t.Errorf("%d ranks: rank %d holds %v, rank 0 %v", ranks, rank, results[rank], results[0])
			}
		}
	}
}

func TestAllRanksBeginWithRankZerosCheckpoint(t *testing.T) {
	inRing(t, 3, func(rank int, r *ring) error {
		c := checkpoint{Step: 7 * rank, Parameters: []float64{1, 2}}
		if rank == 0 {
			c = checkpoint{Step: 150, Parameters: []float64{3, 4}}
		}
		if err := r.broadcast(&c); err != nil {
			return err
		}
		if c.Step != 150 || c.Parameters[0] != 3 || len(c.Parameters) != 2 {
			t.Errorf("rank %d begins with %v", rank, c)
		}
		return nil
	})
}

// The gradient is what the loss really does when a parameter is moved a little.
func TestTheGradientIsThatOfTheLoss(t *testing.T) {
	m, letters := newModel(), []byte{19, 7, 4, 26, 2, 0, 19}
	gradient := make([]float64, len(m.parameters))
	m.learn(letters, 1, gradient)
	ignored := make([]float64, len(m.parameters))
	for i := 0; i < len(m.parameters); i += 7 {
		const little = 1e-6
		was := m.parameters[i]
		m.parameters[i] = was + little
		up := m.learn(letters, 1, ignored)
		m.parameters[i] = was - little
		down := m.learn(letters, 1, ignored)
		m.parameters[i] = was
		if slope := (up - down) / (2 * little); math.Abs(slope-gradient[i]) > 1e-6 {
			t.Errorf("parameter %d: the gradient says %v, the loss %v", i, gradient[i], slope)
		}
	}
}

func TestTheNewestCheckpointIsFoundAndTheOldOneGone(t *testing.T) {
	dir := t.TempDir()
	first := checkpoint{Parameters: []float64{0, 0}}
	if c, err := newest(dir, first); err != nil || c.Step != 0 {
		t.Fatalf("from an empty folder: %v, %v", c, err)
	}
	for _, step := range []int{50, 100} {
		if err := save(dir, checkpoint{step, []float64{float64(step), 1}}); err != nil {
			t.Fatal(err)
		}
		if c, err := newest(dir, first); err != nil || c.Step != step || c.Parameters[0] != float64(step) {
			t.Errorf("after step %d: %v, %v", step, c, err)
		}
	}
	if _, err := newest(dir, checkpoint{Parameters: []float64{1}}); err == nil {
		t.Error("another model's checkpoint is taken")
	}
}
