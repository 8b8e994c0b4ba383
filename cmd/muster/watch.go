package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/rpc"
)

// watchEvery is how often a verb with -w looks again.
const watchEvery = time.Second

// watchFlag gives a verb that lists or shows -w.
func watchFlag(cmd *cobra.Command, watch *bool) {
	cmd.Flags().BoolVarP(watch, "watch", "w", false, "go on showing what changes, until Ctrl-C; with -o jsonl one change a line")
}

// list prints what look finds, once, or with watch at each change.
func (a *app) list(ctx context.Context, watch bool, look func(context.Context, *rpc.Client) (listing, error)) error {
	client, err := a.dial()
	if err != nil {
		return err
	}
	defer client.Close()
	if watch {
		return a.watch(ctx, client.Patiently(), look)
	}
	l, err := look(ctx, client)
	if err != nil {
		return err
	}
	return a.print(l)
}

// watch prints what look finds and then, again and again, what has changed, until Ctrl-C: on a terminal the whole screen;
// elsewhere the rows and items that are new or differ, a line each; of what is prose all of it.
func (a *app) watch(ctx context.Context, client *rpc.Client, look func(context.Context, *rpc.Client) (listing, error)) error {
	if a.outputForm() == "json" {
		return muster.Errorf(muster.KindUsage, "-w has no end, and so no -o json").WithHint("Say -o jsonl: one change a line")
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	screen := width(a.io.out) > 0 && a.outputForm() == "table"
	shown := map[string]string{} // a row or item by what names it
	for {
		l, err := look(ctx, client)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if screen {
			err = a.redraw(l)
		} else {
			err = a.printChanges(l, shown)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// redraw shows a listing at the top of an empty screen.
func (a *app) redraw(l listing) error {
	if _, err := fmt.Fprint(a.io.out, "\x1b[H\x1b[2J"); err != nil {
		return err
	}
	return a.print(l)
}

// printChanges prints the lines of a listing whose items are new or differ from what was shown. What changes with the clock
// alone is not in the items.
func (a *app) printChanges(l listing, shown map[string]string) error {
	items, err := jsonLines(l.items)
	if err != nil {
		return err
	}
	lines, err := a.linesOf(l, items)
	if err != nil {
		return err
	}
	for i, line := range lines {
		key := fmt.Sprint("line ", i)
		item := fmt.Sprint(items)
		if len(lines) == len(items) && len(items) == len(l.names) {
			key, item = l.names[i], string(items[i])
		}
		if shown[key] == item {
			continue
		}
		shown[key] = item
		if _, err := fmt.Fprintln(a.io.out, line); err != nil {
			return err
		}
	}
	return nil
}

// linesOf gives a listing line by line; what is prose is one.
func (a *app) linesOf(l listing, items []json.RawMessage) ([]string, error) {
	var lines []string
	if a.outputForm() == "jsonl" {
		for _, item := range items {
			lines = append(lines, string(item))
		}
		return lines, nil
	}
	var text bytes.Buffer
	out := a.io.out
	a.io.out = &text
	err := a.print(l)
	a.io.out = out
	if l.text != nil && a.outputForm() == "table" {
		return []string{text.String()}, err
	}
	for line := range strings.Lines(text.String()) {
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	return lines, err
}

// jsonLines gives items one by one.
func jsonLines(items any) ([]json.RawMessage, error) {
	body, err := json.Marshal(items)
	if err != nil {
		return nil, err
	}
	var each []json.RawMessage
	return each, json.Unmarshal(body, &each)
}
