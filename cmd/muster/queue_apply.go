package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config/queuefile"
	"github.com/musterhpc/muster/config/schema"
	"github.com/musterhpc/muster/wire"
)

func (a *app) queueApplyCommand() *cobra.Command {
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use: "apply FILE|-", Short: "make the queues what a file says; shows what changes first", Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.applyQueues(cmd.Context(), args[0], dryRun, yes)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would change")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	a.outputFlags(cmd)
	return cmd
}

// queueChangeJSON is a line of the plan.
type queueChangeJSON struct {
	Queue     string `json:"queue,omitempty"`
	Change    string `json:"change"` // added, removed, changed, over
	Attribute string `json:"attribute,omitempty"`
	Old       string `json:"old,omitempty"`
	New       string `json:"new,omitempty"`
	Detail    string `json:"detail"`
}

func (a *app) applyQueues(ctx context.Context, path string, dryRun, yes bool) error {
	source, name, err := readSource(a.io.in, path)
	if err != nil {
		return err
	}
	file, diagnostics := queuefile.Parse(name, source)
	if diagnostics.HasErrors() {
		return a.sayMistakes(name, source, diagnostics)
	}
	client, err := a.dial()
	if err != nil {
		return err
	}
	defer client.Close()
	now, infos, err := presentQueues(ctx, client, false)
	if err != nil {
		return err
	}
	request := &wire.ApplyQueuesRequest{RequestId: newRequestID(), Policy: wire.PolicyOf(&file.Policy), DryRun: true}
	for i := range file.Queues {
		request.Queues = append(request.Queues, wire.QueueSpecOf(&file.Queues[i]))
	}
	if _, err := client.ApplyQueues(ctx, request); err != nil {
		return a.refusedQueues(name, source, err)
	}
	plan := queuePlan(now, file, infos)
	if err := a.printPlan(plan); err != nil || dryRun || len(plan) == 0 {
		return err
	}
	if !yes {
		if path == "-" || !isTerminal(a.io.in) {
			return muster.Errorf(muster.KindUsage, "nothing was applied: there is nobody to ask").WithHint("Say -y to apply without being asked")
		}
		if agreed, err := a.agree("Apply?"); err != nil || !agreed {
			return err
		}
	}
	request.DryRun, request.RequestId = false, newRequestID()
	if _, err := client.ApplyQueues(ctx, request); err != nil {
		return a.refusedQueues(name, source, err)
	}
	_, err = fmt.Fprintf(a.io.err, "applied: %s\n", count(len(file.Queues), "queue"))
	return err
}

func (a *app) sayMistakes(name string, source []byte, diagnostics hcl.Diagnostics) error {
	if a.wantsJSON() {
		return &invalidFiles{diagnostics}
	}
	if err := schema.WriteText(a.io.err, map[string][]byte{name: source}, diagnostics, a.textWidth(), colours(a.io.err)); err != nil {
		return err
	}
	return alreadySaid{muster.KindInvalid}
}

// refusedQueues shows a refusal that is about a line of the file there.
func (a *app) refusedQueues(name string, source []byte, err error) error {
	var refusal *muster.Error
	if !errors.As(err, &refusal) || refusal.Field == "" || refusal.Kind != muster.KindInvalid {
		return err
	}
	return a.sayMistakes(name, source, hcl.Diagnostics{queuefile.Diagnose(name, source, refusal)})
}

// queuePlan lists what a file changes, and who would be over a limit then.
func queuePlan(now, file *queuefile.File, infos []*wire.QueueInfo) []queueChangeJSON {
	plan := []queueChangeJSON{}
	for _, c := range queuefile.Diff(now, file) {
		plan = append(plan, queueChangeJSON{Queue: c.Queue, Change: c.Kind, Attribute: c.Attribute, Old: c.Old, New: c.New, Detail: c.String()})
	}
	for _, x := range infos {
		at, kept := slices.BinarySearchFunc(file.Queues, x.GetSpec().GetName(), muster.QueueSpec.CompareName)
		if !kept {
			continue
		}
		q := &file.Queues[at]
		over := func(what string, held string, limit int) {
			plan = append(plan, queueChangeJSON{Queue: q.Name, Change: "over",
				Detail: fmt.Sprintf("queue %s: %s %s, over %d: what runs goes on, new work waits", q.Name, held, what, limit)})
		}
		if q.MaxGPUs > 0 && x.GetMilliGpus() > int64(q.MaxGPUs)*1000 {
			over("GPUs are held", muster.MilliGPUs(x.GetMilliGpus()).String(), q.MaxGPUs)
		}
		if q.MaxRunning > 0 && x.GetRunning() > int64(q.MaxRunning) {
			over("jobs run", strconv.FormatInt(x.GetRunning(), 10), q.MaxRunning)
		}
		for _, u := range x.GetUsers() {
			if q.UserGPUs > 0 && u.GetMilliGpus() > int64(q.UserGPUs)*1000 {
				over("GPUs are held by "+u.GetUser(), muster.MilliGPUs(u.GetMilliGpus()).String(), q.UserGPUs)
			}
		}
	}
	return plan
}

func (a *app) printPlan(plan []queueChangeJSON) error {
	l := listing{items: plan, text: func() error {
		if len(plan) == 0 {
			_, err := fmt.Fprintln(a.io.err, "nothing changes")
			return err
		}
		for _, c := range plan {
			if _, err := fmt.Fprintln(a.io.out, c.Detail); err != nil {
				return err
			}
		}
		return nil
	}}
	for _, c := range plan {
		l.names = append(l.names, c.Queue)
	}
	return a.print(l)
}

func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// agree asks a person at the terminal.
func (a *app) agree(question string) (bool, error) {
	if _, err := fmt.Fprintf(a.io.err, "%s [y/N] ", question); err != nil {
		return false, err
	}
	line, err := bufio.NewReader(a.io.in).ReadString('\n')
	if err != nil && line == "" {
		return false, nil
	}
	word := strings.ToLower(strings.TrimSpace(line))
	return word == "y" || word == "yes", nil
}
