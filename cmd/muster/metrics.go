package main

import (
	"net"
	"net/http"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/cluster"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/worker"
)

// newRegistry makes the registry of an agent's process, with what is true of every process.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(buildInfo(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

func buildInfo() prometheus.Gauge {
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_build_info", Help: "1; the label says which version runs.",
		ConstLabels: prometheus.Labels{"version": version}})
	build.Set(1)
	return build
}

// scrapesAtOnce bounds what a crowd of scrapers costs.
const scrapesAtOnce = 4

func scrapeHandler(registry *prometheus.Registry, log hclog.Logger) http.Handler {
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Warn}), ErrorHandling: promhttp.ContinueOnError,
		MaxRequestsInFlight: scrapesAtOnce,
	})
}

// measureLibraries puts what raft and memberlist measure into the registry.
func (a *agent) measureLibraries() error {
	libraries, err := cluster.Libraries()
	if err != nil {
		return err
	}
	return a.registry.Register(libraries)
}

// startMonitor answers HTTP for a worker beside which there is no server.
func (a *agent) startMonitor(metrics *worker.Metrics) error {
	listener, err := net.Listen("tcp", a.address(a.config.Ports.HTTP))
	if err != nil {
		return portTaken("http", err)
	}
	monitor := rpc.NewMonitor(scrapeHandler(a.registry, a.log.Named("metrics")), func() error {
		if metrics.Connected() {
			return nil
		}
		return muster.Errorf(muster.KindUnavailable, "this worker talks to no server")
	}, a.log.Named("http"))
	a.parts = append(a.parts, monitor.Stop)
	a.log.Info("HTTP", "address", listener.Addr().String())
	a.run("http", func() error { return monitor.Serve(listener) })
	return nil
}
