package rpc

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/musterhpc/muster/wire"
)

func TestRequestsAreForwardedAndDutiesAreNot(t *testing.T) {
	commands := (&wire.Command{}).ProtoReflect().Descriptor().Oneofs().Get(0).Fields()
	for i := range commands.Len() {
		field := commands.Get(i)
		c := &wire.Command{}
		c.ProtoReflect().Set(field, protoreflect.ValueOfMessage(c.ProtoReflect().NewField(field).Message()))
		err := forwardable(proto.CloneOf(c))
		duty := field.Message().Fields().ByName("term") != nil || field.Name() == "init_cluster"
		if duty != (err != nil) {
			t.Errorf("%s: %v", field.Name(), err)
		}
	}
	if forwardable(&wire.Command{}) == nil {
		t.Error("nothing is forwarded")
	}
}
