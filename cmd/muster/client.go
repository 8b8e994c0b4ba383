package main

import (
	"fmt"
	"io"

	"github.com/musterhpc/muster/config"
	"github.com/musterhpc/muster/rpc"
)

// dial connects to the cluster that flags, environment and configuration name.
func (a *app) dial() (*rpc.Client, error) {
	found, err := config.Resolve(a.addressSources())
	if err != nil {
		return nil, err
	}
	if err := goneDev(found); err != nil {
		return nil, err
	}
	return dialServers(found.Addresses, rpc.Options{}, a.io.err)
}

func (a *app) addressSources() config.AddressSources {
	return config.AddressSources{Flag: a.global.addresses, Context: a.global.context}
}

// dialServers makes a client; what goes on in between ("no leader yet, trying on") is said on notes, which may be nil.
func dialServers(addresses []string, options rpc.Options, notes io.Writer) (*rpc.Client, error) {
	if notes != nil {
		options.Notify = func(text string) { fmt.Fprintf(notes, "-- %s --\n", text) }
	}
	return rpc.Dial(addresses, options)
}

// saveDevContext makes plain `muster …` in another shell find the dev cluster; forget takes it back.
func saveDevContext(addresses []string) (forget func(), err error) {
	return config.SaveContext("dev", addresses)
}
