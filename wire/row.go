package wire

import (
	"fmt"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// ResultOf converts what a command answered.
func ResultOf(r *state.Result) *Result {
	return &Result{
		Err:   ErrorOf(r.Err),
		Jobs:  numbersOf[uint64](r.Jobs),
		Notes: r.Notes,
		Node:  uint32(r.Node),
		Kill:  AllocIDsOf(r.Kill),
		Refused: listOf(r.Refused, func(f *state.Refusal) *Refusal {
			return &Refusal{Job: uint64(f.Job), Reason: f.Reason}
		}),
		Replay: r.Replay,
	}
}

// Domain converts back.
func (x *Result) Domain() (state.Result, error) {
	var d decoder
	r := d.result(x)
	return r, d.err
}

func (d *decoder) result(x *Result) state.Result {
	if !d.present("Result", x == nil) {
		return state.Result{}
	}
	d.known("Result", x.unknownFields)
	return state.Result{
		Err:   d.error(x.Err),
		Jobs:  numbersOf[muster.JobID](x.Jobs),
		Notes: x.Notes,
		Node:  muster.NodeID(x.Node),
		Kill:  domainList(d, "Result.kill", x.Kill, d.allocID),
		Refused: domainList(d, "Result.refused", x.Refused, func(f *Refusal) state.Refusal {
			d.known("Refusal", f.unknownFields)
			return state.Refusal{Job: muster.JobID(f.Job), Reason: f.Reason}
		}),
		Replay: x.Replay,
	}
}

// RowOf converts a row of any table.
func RowOf(row state.Row) *Row {
	switch r := row.(type) {
	case *state.Cluster:
		return &Row{Row: &Row_Cluster{&Cluster{
			Id:        r.ID,
			Epoch:     uint32(r.Epoch),
			Level:     r.Level,
			Time:      int64(r.Time),
			NextJob:   uint64(r.NextJob),
			NextAlloc: r.NextAlloc,
			NextNode:  uint32(r.NextNode),
			NextShape: uint32(r.NextShape),
			Policy:    policyRowOf(r.Policy),
			Preempted: int64(r.Preempted),
		}}}
	case *state.SpecRow:
		return &Row{Row: &Row_Spec{&SpecRow{Id: r.ID[:], Spec: JobSpecOf(r.Spec), Jobs: int64(r.Jobs)}}}
	case *state.ShapeRow:
		return &Row{Row: &Row_Shape{&ShapeRow{Id: uint32(r.ID), Shape: shapeOf(r.Shape), Jobs: int64(r.Jobs)}}}
	case *muster.Queue:
		return &Row{Row: &Row_Queue{queueOf(r)}}
	case *muster.Node:
		return &Row{Row: &Row_Node{NodeOf(r)}}
	case *muster.Job:
		return &Row{Row: &Row_Job{JobOf(r)}}
	case *muster.Allocation:
		return &Row{Row: &Row_Allocation{AllocationOf(r)}}
	case *state.HoldRow:
		return &Row{Row: &Row_Hold{holdOf(r)}}
	case *state.UsageRow:
		return &Row{Row: &Row_Usage{usageOf(r)}}
	case *state.HistoryRow:
		return &Row{Row: &Row_History{historyOf(r)}}
	case *state.RequestRow:
		return &Row{Row: &Row_Request{&RequestRow{
			Id: r.ID, Content: r.Content[:], Result: ResultOf(&r.Result), Expires: int64(r.Expires)}}}
	case *state.Event:
		return &Row{Row: &Row_Event{eventOf(r)}}
	}
	panic(fmt.Sprintf("a row of type %T has no wire form", row)) // the set is closed; a test walks it
}

// Domain converts back. A row that isn't known is an error.
func (x *Row) Domain() (state.Row, error) {
	var d decoder
	row := d.row(x)
	if d.err != nil {
		return nil, d.err
	}
	return row, nil
}

func (d *decoder) row(x *Row) state.Row {
	if !d.present("Row", x == nil) {
		return nil
	}
	d.known("Row", x.unknownFields)
	switch r := x.Row.(type) {
	case *Row_Cluster:
		return decode(d, "Cluster", r.Cluster, func(x *Cluster) state.Row {
			d.known("Cluster", x.unknownFields)
			return &state.Cluster{
				ID:        x.Id,
				Epoch:     muster.Epoch(x.Epoch),
				Level:     x.Level,
				Time:      d.time("Cluster.time", x.Time),
				NextJob:   muster.JobID(x.NextJob),
				NextAlloc: x.NextAlloc,
				NextNode:  muster.NodeID(x.NextNode),
				NextShape: muster.ShapeID(x.NextShape),
				Policy:    d.policyRow(x.Policy),
				Preempted: d.time("Cluster.preempted", x.Preempted),
			}
		})
	case *Row_Spec:
		return decode(d, "SpecRow", r.Spec, func(x *SpecRow) state.Row {
			d.known("SpecRow", x.unknownFields)
			row := &state.SpecRow{Spec: d.jobSpec(x.Spec), Jobs: d.count("SpecRow.jobs", x.Jobs)}
			d.hash("SpecRow.id", row.ID[:], x.Id)
			return row
		})
	case *Row_Shape:
		return decode(d, "ShapeRow", r.Shape, func(x *ShapeRow) state.Row {
			d.known("ShapeRow", x.unknownFields)
			return &state.ShapeRow{ID: muster.ShapeID(x.Id), Shape: d.shape(x.Shape), Jobs: d.count("ShapeRow.jobs", x.Jobs)}
		})
	case *Row_Queue:
		return d.queue(r.Queue)
	case *Row_Node:
		return d.node(r.Node)
	case *Row_Job:
		return d.job(r.Job)
	case *Row_Allocation:
		return d.allocation(r.Allocation)
	case *Row_Hold:
		return decode(d, "HoldRow", r.Hold, d.hold)
	case *Row_Usage:
		return decode(d, "UsageRow", r.Usage, d.usage)
	case *Row_History:
		return decode(d, "HistoryRow", r.History, d.history)
	case *Row_Event:
		return d.event(r.Event)
	case *Row_Request:
		return decode(d, "RequestRow", r.Request, func(x *RequestRow) state.Row {
			d.known("RequestRow", x.unknownFields)
			row := &state.RequestRow{ID: x.Id, Result: d.result(x.Result), Expires: d.time("RequestRow.expires", x.Expires)}
			d.hash("RequestRow.content", row.Content[:], x.Content)
			return row
		})
	default:
		d.fail("a row isn't known: this server is older than what wrote it")
		return nil
	}
}
