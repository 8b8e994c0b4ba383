package state

import (
	"fmt"
	"testing"

	"github.com/musterhpc/muster"
)

// BenchmarkSubmit applies entries of one remembered job each behind many pending ones, with a snapshot after each.
func BenchmarkSubmit(b *testing.B) {
	for _, backlog := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("behind-%d", backlog), func(b *testing.B) {
			s := New()
			m := machine("gpu-01", 8)
			s.Apply(Entry{Stamp: 1, Commands: []Command{&RegisterNode{Node: m}}}, 1, term)
			spec := gang("train", 1, 8)
			index := muster.Index(1)
			submit := func(id string) {
				index++
				s.Apply(Entry{Stamp: muster.Time(index), Commands: []Command{&Submit{Header: Header{RequestID: id, User: "ann"},
					Specs: []*muster.JobSpec{spec}}}}, index, term)
			}
			for range backlog {
				submit("")
			}
			ids := make([]string, b.N)
			for i := range ids {
				ids[i] = fmt.Sprintf("request-%d", i)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				submit(ids[i])
				s.Snapshot()
			}
		})
	}
}

// BenchmarkSubmitBatch applies entries of 64 remembered jobs; an operation is one job.
func BenchmarkSubmitBatch(b *testing.B) {
	s := New()
	spec := gang("train", 1, 8)
	index := muster.Index(0)
	entries := make([]Entry, b.N/64+1)
	for i := range entries {
		for k := range 64 {
			entries[i].Commands = append(entries[i].Commands, &Submit{Header: Header{RequestID: fmt.Sprintf("request-%d-%d", i, k), User: "ann"},
				Specs: []*muster.JobSpec{spec}})
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for _, e := range entries {
		index++
		s.Apply(e, index, term)
		s.Snapshot()
	}
}

// BenchmarkCommitPlan places gangs of 8 ranks with 8 GPUs each on 10,000 nodes; an operation is one gang.
func BenchmarkCommitPlan(b *testing.B) {
	const nodes, ranks = 10_000, 8
	var s *State
	var index muster.Index
	next := nodes
	begin := func() {
		s, index, next = New(), 0, 0
		var e Entry
		for i := range nodes {
			e.Commands = append(e.Commands, &RegisterNode{Node: machine(fmt.Sprintf("gpu-%05d", i), 8)})
		}
		spec := gang("train", ranks, 8)
		for range nodes / ranks {
			e.Commands = append(e.Commands, &Submit{Specs: []*muster.JobSpec{spec}})
		}
		index++
		s.Apply(e, index, term)
		s.Snapshot()
	}
	b.ReportAllocs()
	for range b.N {
		if next+ranks > nodes {
			b.StopTimer()
			begin()
			b.StartTimer()
		}
		g := GangPlacement{Job: muster.JobID(next/ranks + 1), Attempt: 1}
		for rank := range ranks {
			next++
			g.Ranks = append(g.Ranks, RankPlacement{Rank: rank, Node: muster.NodeID(next), Slots: muster.SlotRange(8),
				MilliCores: 64_000, Memory: 512 * muster.GiB / 100 * 95 / 8 * 8})
		}
		index++
		results, _ := s.Apply(Entry{Stamp: 1, Commands: []Command{&CommitPlan{Term: term, Gangs: []GangPlacement{g}}}}, index, term)
		if len(results[0].Refused) > 0 {
			b.Fatal(results[0].Refused)
		}
		s.Snapshot()
	}
}
