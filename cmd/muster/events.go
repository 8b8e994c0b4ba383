package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

func (a *app) eventsCommand() *cobra.Command {
	request := &wire.EventsRequest{}
	var since string
	cmd := &cobra.Command{
		Use: "events [JOB|NODE|QUEUE]", Short: "what happened, the oldest first", Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				request.Object = args[0]
			}
			var err error
			if request.Since, err = moment(since, time.Now()); err != nil {
				return err
			}
			request.Stale = a.global.stale
			return a.events(cmd.Context(), request)
		},
	}
	cmd.Flags().BoolVarP(&request.Follow, "follow", "f", false, "go on with what happens, until Ctrl-C")
	cmd.Flags().StringVar(&since, "since", "", "since a duration ago, as in 10m, or an RFC 3339 time")
	a.outputFlags(cmd)
	return cmd
}

func (a *app) events(ctx context.Context, request *wire.EventsRequest) error {
	if request.Follow {
		return a.followEvents(ctx, request)
	}
	client, err := a.dial()
	if err != nil {
		return err
	}
	defer client.Close()
	var events []*wire.EventInfo
	if err := client.FollowEvents(ctx, request, func(e *wire.EventInfo) error {
		events = append(events, e)
		return nil
	}); err != nil {
		return err
	}
	l := listing{items: wire.EventsJSON(events)}
	for _, e := range events {
		l.names = append(l.names, fmt.Sprintf("%d/%d", e.GetIndex(), e.GetNth()))
	}
	l.table = func() table {
		t := table{header: []string{"TIME", "KIND", "WHAT"}, state: -1}
		for _, e := range events {
			t.rows = append(t.rows, a.eventRow(e, time.Now()))
		}
		return t
	}
	return a.print(l)
}

func (a *app) eventRow(e *wire.EventInfo, now time.Time) []string {
	return []string{a.when(e.GetTime(), now), e.GetKind(), e.GetText()}
}

// followEvents prints events as they happen, a line each.
func (a *app) followEvents(ctx context.Context, request *wire.EventsRequest) error {
	form := a.outputForm()
	if form != "table" && form != "jsonl" {
		return muster.Errorf(muster.KindUsage, "-f has no end, and so no -o %s", form).WithHint("Say -o jsonl: one event a line")
	}
	client, err := a.dial()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	err = client.Patiently().FollowEvents(ctx, request, func(e *wire.EventInfo) error {
		if form == "jsonl" {
			body, err := json.Marshal(wire.EventJSONOf(e))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.io.out, string(body))
			return err
		}
		row, sep := a.eventRow(e, time.Now()), "\t"
		if width(a.io.out) > 0 { // the end is not known, so there are no columns to fit
			row[0], sep = time.UnixMilli(e.GetTime()).Local().Format("Jan 2 15:04:05"), "  "
		}
		return table{rows: [][]string{row}}.lines(a.io.out, sep)
	})
	if ctx.Err() != nil {
		return nil // Ctrl-C
	}
	return err
}
