package rpc

import (
	"testing"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

func TestEveryMethodHasOneActionAndOnlyServersAndWorkersHaveTheirOwn(t *testing.T) {
	services := []grpc.ServiceDesc{wire.Muster_ServiceDesc, wire.Peers_ServiceDesc, wire.Workers_ServiceDesc}
	count := 0
	for _, service := range services {
		var methods []string
		for _, m := range service.Methods {
			methods = append(methods, m.MethodName)
		}
		for _, s := range service.Streams {
			methods = append(methods, s.StreamName)
		}
		for _, m := range methods {
			count++
			method := "/" + service.ServiceName + "/" + m
			if _, known := actions[method]; !known {
				t.Errorf("method %s has no action: nobody may call it", method)
			}
			if err := authorise(Caller{User: "agent", Agent: true}, method); err != nil {
				t.Errorf("the agent's own user, %s: %v", method, err)
			}
			denied := authorise(Caller{User: "ann"}, method) != nil
			if want := service.ServiceName != wire.Muster_ServiceDesc.ServiceName; denied != want {
				t.Errorf("a user, %s: denied is %t", method, denied)
			}
			if authorise(Caller{}, method) == nil {
				t.Errorf("nobody may call %s", method)
			}
		}
	}
	if count != len(actions) {
		t.Errorf("%d methods, %d rows: a row is for no method", count, len(actions))
	}
	if muster.KindOf(authorise(Caller{User: "agent", Agent: true}, "/muster.v1.Muster/Unknown")) != muster.KindDenied {
		t.Error("a method without a row must be denied")
	}
}
