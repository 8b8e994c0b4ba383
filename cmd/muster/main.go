// Command muster is the whole of muster: the agent (server, worker or both), the development cluster and the command line.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/musterhpc/muster"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	code := run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr})
	stop()
	os.Exit(code)
}

// run is the command line as a function: it returns the exit code, and only main exits.
func run(ctx context.Context, args []string, io streams) int {
	app := &app{io: io}
	root := app.command()
	root.SetArgs(args)
	root.SetIn(io.in)
	root.SetOut(io.out) // help that was asked for
	root.SetErr(io.err)
	verb, err := root.ExecuteContextC(ctx)
	if detached, _ := verb.Flags().GetBool("detach"); verb.Annotations[carriesCode] != "" && !detached {
		app.attached = true // a bad flag or argument too
	}
	return app.report(err)
}

// app holds what all verbs share.
type app struct {
	io       streams
	global   globalFlags
	attached bool // the verb carries a job's exit code: muster's own failures are 125
}

type globalFlags struct {
	addresses string
	context   string
	output    string
	json      bool
	stale     bool
}

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:           "muster",
		Short:         "muster shares GPU machines: jobs are HCL files, servers replicate the queue, workers run the tasks",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownVerb(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetVersionTemplate("muster {{.Version}}\n")
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { fmt.Fprint(cmd.OutOrStdout(), helpText(cmd)) })
	root.SetHelpCommand(&cobra.Command{Use: "help [VERB…]", Short: "help about a verb", RunE: func(_ *cobra.Command, args []string) error {
		verb, rest, err := root.Find(args)
		if err != nil || len(rest) > 0 {
			return unknownVerb(verb, args[len(args)-1])
		}
		return verb.Help()
	}})
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return muster.Errorf(muster.KindUsage, "%v", err).WithHint("See: %s --help", cmd.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.StringVar(&a.global.addresses, "addr", "", "servers: host[:4691], several by commas, or unix:///path (MUSTER_ADDR)")
	flags.StringVar(&a.global.context, "context", "", "a context of ~/.config/muster/config.hcl (MUSTER_CONTEXT)")
	root.AddCommand(
		a.runCommand(), a.psCommand(), a.showCommand(), a.whyCommand(), a.logsCommand(), a.cancelCommand(), a.holdCommand(), a.releaseCommand(),
		a.priorityCommand(), a.requeueCommand(), a.rerunCommand(), a.eventsCommand(), a.whoamiCommand(), a.configCommand(), a.completionCommand(),
		a.waitCommand(), a.validateCommand(), a.fmtCommand(), a.gpusCommand(), a.queueCommand(), a.nodeCommand(), a.serverCommand(), a.agentCommand(),
		a.devCommand(), a.simulateCommand(), a.superviseCommand(), a.parseCommand(), a.versionCommand(),
	)
	for _, name := range laterVerbs {
		root.AddCommand(laterCommand(name))
	}
	return root
}

// laterVerbs are of the contract, and not built yet: refused, never taken for a typing mistake.
var laterVerbs = strings.Fields(`plan exec cp forward scale update rollback move top usage
	import token access snapshot debug init join doctor `)

func laterCommand(name string) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return muster.Errorf(muster.KindUsage, "muster %s is not supported yet", name)
		},
	}
}

func unknownVerb(cmd *cobra.Command, verb string) error {
	err := muster.Errorf(muster.KindUsage, "there is no verb %q in %s", verb, cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(verb); len(near) > 0 {
		return err.WithHint("Did you mean: %s?", strings.Join(near, ", "))
	}
	return err.WithHint("See: %s --help", cmd.CommandPath())
}

// group makes a noun whose verbs stand below it.
func group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	noun := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownVerb(cmd, args[0])
		}
		return cmd.Help()
	}}
	noun.AddCommand(verbs...)
	return noun
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "print the version", Args: usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(a.io.out, "muster", version)
			return err
		},
	}
}

// carriesCode annotates verbs whose exit code is a job's: what is muster's own failure is then 125.
const carriesCode = "carries a job's code"

// usageArgs makes a wrong number of arguments a usage error.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case check(cmd, args) == nil:
			return nil
		case len(args) == 0:
			return muster.Errorf(muster.KindUsage, "%s needs to know what", cmd.CommandPath()).WithHint("Say: %s", usageLine(cmd))
		default:
			return muster.Errorf(muster.KindUsage, "%s does not take %q", cmd.CommandPath(), args[len(args)-1]).WithHint("Say: %s", usageLine(cmd))
		}
	}
}
