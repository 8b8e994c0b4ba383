package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config"
)

// whoJSON is who the servers hold the caller for.
type whoJSON struct {
	User    string `json:"user"`
	Cluster string `json:"cluster"`
	Server  string `json:"server"` // that answered
	Address string `json:"address"`
	Source  string `json:"source"` // of the address: a flag, the environment, a context, a socket
}

func (a *app) whoamiCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "whoami", Short: "who the servers hold you for, and which cluster that is", Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := config.Resolve(a.addressSources())
			if err != nil {
				return err
			}
			client, err := a.dial()
			if err != nil {
				return err
			}
			defer client.Close()
			reply, err := client.WhoAmI(cmd.Context())
			if err != nil {
				return err
			}
			who := whoJSON{User: reply.GetUser(), Cluster: reply.GetCluster(), Server: reply.GetServer(), Address: reply.GetAddress(), Source: found.Source}
			return a.print(listing{items: []whoJSON{who}, names: []string{who.User}, text: func() error {
				_, err := fmt.Fprintf(a.io.out, "%-11s%s\n%-11s%s\n%-11s%s, %s\n%-11s%s\n",
					"User", who.User, "Cluster", who.Cluster, "Server", who.Server, who.Address, "Found by", who.Source)
				return err
			}})
		},
	}
	a.formFlags(cmd)
	return cmd
}

// configJSON is what this client goes by.
type configJSON struct {
	File      string        `json:"file"`
	Current   string        `json:"current"` // context
	Contexts  []contextJSON `json:"contexts"`
	Addresses []string      `json:"addresses"` // that verbs use now
	Source    string        `json:"source"`    // of the addresses
}

type contextJSON struct {
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`
}

func (a *app) configCommand() *cobra.Command {
	show := &cobra.Command{
		Use: "show", Short: "the client's file, and which cluster verbs go to", Args: usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error { return a.configShow() },
	}
	a.formFlags(show)
	return group("config", "this client's configuration: show", show)
}

func (a *app) configShow() error {
	path, err := config.ClientPath()
	if err != nil {
		return err
	}
	file, diags := config.LoadClient(path)
	if diags.HasErrors() {
		return &invalidFiles{diags}
	}
	c := configJSON{File: path, Current: file.Current, Contexts: []contextJSON{}, Addresses: []string{}}
	for _, known := range file.Contexts {
		c.Contexts = append(c.Contexts, contextJSON{known.Name, known.Addresses})
	}
	found, err := config.Resolve(a.addressSources())
	switch {
	case err == nil:
		c.Addresses, c.Source = found.Addresses, found.Source
	case muster.KindOf(err) != muster.KindUnavailable: // none configured is an answer
		return err
	}
	l := listing{items: []configJSON{c}, names: []string{path}}
	for _, known := range c.Contexts {
		l.names = append(l.names, known.Name)
	}
	l.names = l.names[1:]
	l.text = func() error { return a.configText(&c) }
	return a.print(l)
}

func (a *app) configText(c *configJSON) error {
	var b bytes.Buffer
	there := ""
	if _, err := os.Stat(c.File); err != nil {
		there = " (not there)"
	}
	fmt.Fprintf(&b, "%-11s%s%s\n", "File", c.File, there)
	for _, known := range c.Contexts {
		mark := ""
		if known.Name == c.Current {
			mark = "  (current)"
		}
		fmt.Fprintf(&b, "%-11s%s  %s%s\n", "Context", known.Name, strings.Join(known.Addresses, " "), mark)
	}
	if c.Source == "" {
		fmt.Fprintf(&b, "%-11s%s\n", "Used", "none: no cluster configured on this machine. Try: muster dev")
	} else {
		fmt.Fprintf(&b, "%-11s%s  by %s\n", "Used", strings.Join(c.Addresses, " "), c.Source)
	}
	_, err := a.io.out.Write(b.Bytes())
	return err
}

func (a *app) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "completion bash|zsh|fish|powershell", Short: "a script that teaches your shell muster's verbs and flags", Args: usageArgs(cobra.ExactArgs(1)),
		Long: "A script that teaches your shell muster's verbs and flags. For bash: source <(muster completion bash)",
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.io.out, true)
			case "zsh":
				return root.GenZshCompletion(a.io.out)
			case "fish":
				return root.GenFishCompletion(a.io.out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.io.out)
			}
			return muster.Errorf(muster.KindUsage, "there is no completion for %q", args[0]).WithHint("One of: bash, zsh, fish, powershell")
		},
	}
}
