package muster

import (
	"errors"
	"fmt"
)

// Kind says what sort of mistake an error is; the same on both sides of the wire.
type Kind string

// The kinds, with the exit code and the HTTP status that each becomes (docs and cli).
const (
	KindError       Kind = "error"       // exit 1, HTTP 500
	KindUsage       Kind = "usage"       // exit 2, HTTP 400
	KindInvalid     Kind = "invalid"     // exit 3, HTTP 400
	KindDenied      Kind = "denied"      // exit 4, HTTP 403
	KindNotFound    Kind = "not_found"   // exit 5, HTTP 404
	KindConflict    Kind = "conflict"    // exit 6, HTTP 409
	KindUnavailable Kind = "unavailable" // exit 7, HTTP 503; no leader, or unreachable: the same request may be tried again
	KindInfeasible  Kind = "infeasible"  // exit 8, HTTP 422; no node could ever run it
)

// Error is a refusal that a person can act on.
type Error struct {
	Kind    Kind
	Message string // one sentence: what, and where
	Hint    string // what to do; may be empty
	Field   string // path into the submitted job, as in "jobs[0].groups[0].task.dir"; may be empty
}

func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + ". " + e.Hint
}

// Errorf makes an Error without a hint.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// WithHint returns a copy of e that says what to do.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// KindOf gives the kind of the first Error in err's chain, else KindError.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return KindError
}
