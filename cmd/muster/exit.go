package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/musterhpc/muster"
)

// The exit codes of verbs that carry a job's own code (run, wait, dev FILE). Others: see exitOf.
const (
	exitCancelled   = 120
	exitTimeLimit   = 122
	exitHeld        = 123
	exitTimeout     = 124 // --timeout
	exitMuster      = 125 // muster itself: a bad flag or file, denied, conflict, unreachable, infeasible
	exitDetached    = 130
	exitKilledByOOM = 137
)

var exitOf = map[muster.Kind]int{
	muster.KindError: 1, muster.KindUsage: 2, muster.KindInvalid: 3, muster.KindDenied: 4, muster.KindNotFound: 5,
	muster.KindConflict: 6, muster.KindUnavailable: 7, muster.KindInfeasible: 8,
}

// exitCode is an error that only carries a job's code: what there is to say has been said.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// alreadySaid is an error whose message has been printed (a file's diagnostics).
type alreadySaid struct{ kind muster.Kind }

func (e alreadySaid) Error() string { return string(e.kind) }

// report prints an error once and gives the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return 0
	}
	var code exitCode
	if errors.As(err, &code) {
		return int(code)
	}
	var said alreadySaid
	kind := muster.KindOf(err)
	switch {
	case errors.As(err, &said):
		kind = said.kind
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(a.io.err, "muster: interrupted")
	default:
		a.printError(err)
	}
	if a.attached {
		return exitMuster
	}
	return exitOf[kind]
}

func (a *app) printError(err error) {
	var e *muster.Error
	if !errors.As(err, &e) {
		e = muster.Errorf(muster.KindError, "%v", err)
	}
	if a.global.output == "json" || a.global.json {
		body, _ := json.Marshal(map[string]any{"error": map[string]any{"code": e.Kind, "message": e.Message, "hint": e.Hint}})
		fmt.Fprintln(a.io.err, string(body))
		return
	}
	fmt.Fprintf(a.io.err, "muster: %s\n", e.Message)
	if e.Hint != "" {
		fmt.Fprintf(a.io.err, "        %s\n", e.Hint)
	}
}
