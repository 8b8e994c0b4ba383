package wire

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// EntryOf converts a log entry.
func EntryOf(e state.Entry) *Entry {
	out := &Entry{Stamp: int64(e.Stamp), Commands: make([]*Command, len(e.Commands))}
	for i, c := range e.Commands {
		out.Commands[i] = CommandOf(c)
	}
	return out
}

// Domain converts back.
func (x *Entry) Domain() (state.Entry, error) {
	var d decoder
	d.known("Entry", x.unknownFields)
	e := state.Entry{Stamp: d.time("Entry.stamp", x.Stamp), Commands: domainList(&d, "Entry.commands", x.Commands, d.command)}
	if d.err != nil {
		return state.Entry{}, d.err
	}
	return e, nil
}

// EncodeEntry gives the bytes of a log entry.
func EncodeEntry(e state.Entry) []byte { return Encode(EntryOf(e)) }

// DecodeEntry reads the bytes of a log entry. An error means that this server can't know what the others do with it.
func DecodeEntry(data []byte) (state.Entry, error) {
	var x Entry
	if err := proto.Unmarshal(data, &x); err != nil {
		return state.Entry{}, muster.Errorf(muster.KindInvalid, "the bytes of a log entry can't be read: %v", err)
	}
	return x.Domain()
}

// EncodeRow gives the bytes of a snapshot's row.
func EncodeRow(row state.Row) []byte { return Encode(RowOf(row)) }

// DecodeRow reads the bytes of a snapshot's row.
func DecodeRow(data []byte) (state.Row, error) {
	var x Row
	if err := proto.Unmarshal(data, &x); err != nil {
		return nil, muster.Errorf(muster.KindInvalid, "the bytes of a row can't be read: %v", err)
	}
	return x.Domain()
}

// Encode gives the bytes of a message. Text that is no UTF-8, which protobuf can't carry, has its bad bytes replaced.
func Encode(m proto.Message) []byte {
	data, err := proto.Marshal(m)
	if err == nil {
		return data
	}
	m = proto.Clone(m)
	if err = validText(m); err == nil {
		data, err = proto.Marshal(m)
	}
	if err != nil {
		panic(fmt.Sprintf("a message can't be encoded: %v", err)) // bad text is all that Marshal refuses in messages without required fields
	}
	return data
}

// validText replaces bytes that are no UTF-8 in all texts of m.
func validText(m proto.Message) error {
	return protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		last := p.Index(-1)
		text, ok := last.Value.Interface().(string)
		if !ok || strings.ToValidUTF8(text, "") == text {
			return nil
		}
		fixed := protoreflect.ValueOfString(strings.ToValidUTF8(text, "\uFFFD"))
		parent := p.Index(-2)
		switch last.Step.Kind() {
		case protopath.FieldAccessStep:
			parent.Value.Message().Set(last.Step.FieldDescriptor(), fixed)
		case protopath.ListIndexStep:
			parent.Value.List().Set(last.Step.ListIndex(), fixed)
		}
		return nil
	})
}
