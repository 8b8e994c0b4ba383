package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/musterhpc/muster"
)

func TestAnErrorCrossesGRPCWhole(t *testing.T) {
	for _, kind := range []muster.Kind{muster.KindError, muster.KindUsage, muster.KindInvalid, muster.KindDenied, muster.KindNotFound,
		muster.KindConflict, muster.KindUnavailable, muster.KindInfeasible} {
		sent := &muster.Error{Kind: kind, Message: "no", Hint: "say yes", Field: "jobs[0].name"}
		got := FromStatus(StatusOf(fmt.Errorf("while asking: %w", sent)))
		if diff := cmp.Diff(error(sent), got); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
	}
	if code := status.Code(StatusOf(muster.Errorf(muster.KindNotFound, "no job"))); code != codes.NotFound {
		t.Errorf("code %s", code)
	}
}

func TestOtherErrorsBecomeKindsToo(t *testing.T) {
	for _, c := range []struct {
		err  error
		want muster.Kind
	}{
		{status.Error(codes.Unavailable, "connection refused"), muster.KindUnavailable},
		{status.Error(codes.DeadlineExceeded, "late"), muster.KindUnavailable},
		{status.Error(codes.Unimplemented, "no such method"), muster.KindError},
		{status.Error(codes.ResourceExhausted, "too large"), muster.KindInvalid},
		{StatusOf(context.DeadlineExceeded), muster.KindUnavailable},
		{StatusOf(io.ErrUnexpectedEOF), muster.KindError},
	} {
		if got := muster.KindOf(FromStatus(c.err)); got != c.want {
			t.Errorf("%v became %s, want %s", c.err, got, c.want)
		}
	}
	if err := FromStatus(StatusOf(context.Canceled)); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context became %v", err)
	}
	if StatusOf(nil) != nil || FromStatus(nil) != nil || FromStatus(io.EOF) != io.EOF || ErrorOf((*muster.Error)(nil)) != nil {
		t.Error("what is no status must stay as it is")
	}
	ready := status.Error(codes.Aborted, "x")
	if StatusOf(ready) != ready {
		t.Error("a status must stay as it is")
	}
	if got := (&Error{Kind: "of the future"}).Domain(); got.Kind != muster.KindError {
		t.Errorf("an unknown kind became %s", got.Kind)
	}
}

// What gRPC writes around the reason of a connection that failed says nothing to people.
func TestAConnectionThatFailedSaysWhy(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`, "connection refused"},
		{`last connection error: connection error: desc = "transport: Error while dialing: dial unix /nope: connect: no such file or directory"`,
			"no such file or directory"},
		{`connection error: desc = "transport: Error while dialing: dial tcp: lookup foo.invalid on 10.0.0.1:53: no such host"`,
			"lookup foo.invalid on 10.0.0.1:53: no such host"},
		{`connection error: desc = "error reading server preface: EOF"`, "error reading server preface: EOF"},
		{`connection error: desc = "error reading server preface: http2: frame too large"`,
			"what answers there is not muster's RPC. Its port is 4691 unless configured otherwise (4690 is HTTP)."},
		{`error reading from server: EOF`, "error reading from server: EOF"},
		{`a word = "in quotes`, `a word = "in quotes`},
	} {
		err := FromStatus(status.Error(codes.Unavailable, c.text))
		if got := strings.TrimPrefix(err.Error(), "the server can't be reached: "); got != c.want || muster.KindOf(err) != muster.KindUnavailable {
			t.Errorf("%s\nsays %q, want %q", c.text, got, c.want)
		}
	}
}
