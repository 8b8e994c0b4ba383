package main

import (
	"net/http"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// newRegistry makes the registry of an agent's process, with what is true of every process.
func newRegistry() *prometheus.Registry {
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_build_info", Help: "1; the label says which version runs.",
		ConstLabels: prometheus.Labels{"version": version}})
	build.Set(1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// scrapesAtOnce bounds what a crowd of scrapers costs.
const scrapesAtOnce = 4

func scrapeHandler(registry *prometheus.Registry, log hclog.Logger) http.Handler {
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Warn}), ErrorHandling: promhttp.ContinueOnError,
		MaxRequestsInFlight: scrapesAtOnce,
	})
}
