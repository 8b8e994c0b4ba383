package rpc

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Monitor is the HTTP of an agent that is no server: /livez, /readyz and /metrics.
type Monitor struct{ http *http.Server }

// NewMonitor makes a monitor that serves nothing until Serve is called. ready says why the agent can't be used; nil: it can.
func NewMonitor(metrics http.Handler, ready func() error, log hclog.Logger) *Monitor {
	mux := http.NewServeMux()
	mux.Handle("/livez", methods{"GET": {handle: func(w http.ResponseWriter, _ *request) error { return ok(w) }}})
	mux.Handle("/readyz", methods{"GET": {handle: func(w http.ResponseWriter, _ *request) error {
		if err := ready(); err != nil {
			return err
		}
		return ok(w)
	}}})
	mux.Handle("/metrics", methods{"GET": {handle: func(w http.ResponseWriter, r *request) error {
		metrics.ServeHTTP(w, r.Request)
		return nil
	}}})
	mux.HandleFunc("/", nothingHere)
	return &Monitor{&http.Server{Handler: protect(mux), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug})}}
}

// Serve answers on l, which it closes, until Stop.
func (m *Monitor) Serve(l net.Listener) error {
	err := m.http.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Stop ends it within two seconds.
func (m *Monitor) Stop() {
	limit, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	if m.http.Shutdown(limit) != nil {
		_ = m.http.Close()
	}
}
