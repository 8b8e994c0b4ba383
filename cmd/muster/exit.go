package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hashicorp/hcl/v2"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// The exit codes of verbs that carry a job's own code (run, wait, dev FILE). Others: see exitOf.
const (
	exitCancelled   = 120
	exitTimeLimit   = 122
	exitHeld        = 123
	exitTimeout     = 124 // --timeout, --start-within
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

// invalidFiles are the mistakes in files, to be told as JSON.
type invalidFiles struct{ diagnostics hcl.Diagnostics }

func (e *invalidFiles) Error() string {
	mistakes := 0
	for _, d := range e.diagnostics {
		if d.Severity == hcl.DiagError {
			mistakes++
		}
	}
	return count(mistakes, "mistake")
}

func (e *invalidFiles) json() []wire.DiagnosticJSON {
	var out []wire.DiagnosticJSON
	for _, d := range e.diagnostics {
		one := wire.DiagnosticJSON{Summary: d.Summary, Detail: d.Detail}
		one.File, one.Line, one.Column = place(d)
		out = append(out, one)
	}
	return out
}

// wantsJSON says whether programs read this: errors too are then JSON.
func (a *app) wantsJSON() bool {
	return a.global.json || a.global.output == "json" || a.global.output == "jsonl"
}

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
	if files := (*invalidFiles)(nil); errors.As(err, &files) {
		kind = muster.KindInvalid
	}
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
	if files := (*invalidFiles)(nil); errors.As(err, &files) {
		e = muster.Errorf(muster.KindInvalid, "%v", err)
	} else if !errors.As(err, &e) {
		e = muster.Errorf(muster.KindError, "%v", err)
	}
	if a.wantsJSON() {
		var files *invalidFiles
		var diagnostics []wire.DiagnosticJSON
		if errors.As(err, &files) {
			diagnostics = files.json()
		}
		body, _ := json.Marshal(wire.ErrorJSONOf(e, diagnostics...)) // strings and numbers only
		fmt.Fprintln(a.io.err, string(body))
		return
	}
	fmt.Fprintf(a.io.err, "muster: %s\n", e.Message)
	if e.Hint != "" {
		fmt.Fprintf(a.io.err, "        %s\n", e.Hint)
	}
}
