package wire

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/musterhpc/muster"
)

// ErrorOf converts any error: the first *muster.Error of its chain, else one of KindError with its text. nil is nil.
func ErrorOf(err error) *Error {
	var e *muster.Error
	if errors.As(err, &e) {
		if e == nil { // a nil *muster.Error in an error
			return nil
		}
		return &Error{Kind: string(e.Kind), Message: e.Message, Hint: e.Hint, Field: e.Field}
	}
	if err == nil {
		return nil
	}
	return &Error{Kind: string(muster.KindError), Message: err.Error()}
}

// Domain converts back; nil is nil. A kind that isn't known, of a newer server, is KindError.
func (x *Error) Domain() *muster.Error {
	if x == nil {
		return nil
	}
	kind := muster.Kind(x.Kind)
	if _, known := statusCodes[kind]; !known {
		kind = muster.KindError
	}
	return &muster.Error{Kind: kind, Message: x.Message, Hint: x.Hint, Field: x.Field}
}

// error decodes an error that rests in the state, where what isn't known must not be guessed.
func (d *decoder) error(x *Error) *muster.Error {
	if x == nil {
		return nil
	}
	d.known("Error", x.unknownFields)
	if _, known := statusCodes[muster.Kind(x.Kind)]; !known {
		d.fail("a kind of error isn't known: %q; this server is older than what wrote it", x.Kind)
	}
	return x.Domain()
}

var statusCodes = map[muster.Kind]codes.Code{
	muster.KindError:       codes.Internal,
	muster.KindUsage:       codes.InvalidArgument,
	muster.KindInvalid:     codes.InvalidArgument,
	muster.KindDenied:      codes.PermissionDenied,
	muster.KindNotFound:    codes.NotFound,
	muster.KindConflict:    codes.AlreadyExists,
	muster.KindUnavailable: codes.Unavailable,
	muster.KindInfeasible:  codes.FailedPrecondition,
}

// StatusOf gives the gRPC status that carries err as an Error in its details. nil and what is a status already stay as they
// are; a deadline that passed is KindUnavailable, a context that was cancelled is Canceled.
func StatusOf(err error) error {
	if err == nil {
		return nil
	}
	var e *muster.Error
	if !errors.As(err, &e) {
		if _, ok := status.FromError(err); ok {
			return err
		}
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			e = muster.Errorf(muster.KindUnavailable, "the request took too long")
		case errors.Is(err, context.Canceled):
			return status.Error(codes.Canceled, err.Error())
		}
	}
	x := ErrorOf(err)
	if e != nil {
		x = ErrorOf(e)
	}
	code, known := statusCodes[muster.Kind(x.Kind)]
	if !known {
		code = codes.Internal
	}
	s := status.New(code, x.Message)
	if detailed, err := s.WithDetails(x); err == nil {
		s = detailed
	}
	return s.Err()
}

// FromStatus recovers the *muster.Error that StatusOf put into a gRPC status. Without one, Unavailable and DeadlineExceeded
// are KindUnavailable (nobody answered, or not in time), Canceled is context.Canceled, and other codes are KindError, with the
// text that came. An error that is no status, and nil, stay as they are.
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	for _, detail := range s.Details() {
		if x, ok := detail.(*Error); ok {
			return x.Domain()
		}
	}
	switch s.Code() {
	case codes.OK:
		return nil
	case codes.Canceled:
		return context.Canceled
	case codes.Unavailable:
		return unreachable(s.Message())
	case codes.DeadlineExceeded:
		return muster.Errorf(muster.KindUnavailable, "the server did not answer in time")
	case codes.Unimplemented:
		return muster.Errorf(muster.KindError, "the server is older than this program: %s", s.Message())
	case codes.InvalidArgument, codes.ResourceExhausted:
		return muster.Errorf(muster.KindInvalid, "%s", s.Message())
	}
	return muster.Errorf(muster.KindError, "%s", s.Message())
}

// grpcWrapping is what gRPC and the network packages write around the reason why a connection failed, each the next one's.
var grpcWrapping = regexp.MustCompile(`^(last (connection|resolver) error: |transport: |Error while dialing: |dial (tcp|unix) \S+: |connect: )+`)

// unreachable is the error of a connection that failed, in as few words as say why.
func unreachable(text string) error {
	text = grpcWrapping.ReplaceAllString(text, "")
	if _, quoted, ok := strings.Cut(text, "connection error: desc = "); ok {
		if inner, err := strconv.Unquote(quoted); err == nil {
			text = grpcWrapping.ReplaceAllString(inner, "")
		}
	}
	text = strings.TrimPrefix(text, "dial tcp: ") // a name that isn't known
	if strings.Contains(text, "server preface: http2: ") {
		return muster.Errorf(muster.KindUnavailable, "the server can't be reached: what answers there is not muster's RPC").
			WithHint("Its port is 4691 unless configured otherwise (4690 is HTTP).")
	}
	return muster.Errorf(muster.KindUnavailable, "the server can't be reached: %s", text)
}
