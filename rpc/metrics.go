package rpc

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// metrics counts what a server answers. Labels come from tables of this program, never from what a client sent, so that
// nobody can make series.
type metrics struct {
	calls    *prometheus.CounterVec
	took     *prometheus.HistogramVec
	streams  *prometheus.GaugeVec
	requests *prometheus.CounterVec
	answered *prometheus.HistogramVec
	parsed   *prometheus.CounterVec
}

// answerTimes are the bounds of latencies: from what memory answers to what a request is held for.
var answerTimes = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

func newMetrics() *metrics {
	return &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_rpc_requests_total",
			Help: "gRPC calls answered; code is ok, canceled, or the kind of the error."}, []string{"method", "code"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "muster_rpc_request_duration_seconds",
			Help: "How long gRPC calls took that give one answer; forwarding and waiting for a leader included.", Buckets: answerTimes},
			[]string{"method"}),
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "muster_rpc_streams",
			Help: "gRPC streams that are open; Workers/Session are the workers that this server talks to."}, []string{"method"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_http_requests_total",
			Help: "HTTP requests answered; route is a path of the API, or other."}, []string{"route", "method", "code"}),
		answered: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "muster_http_request_duration_seconds",
			Help: "How long HTTP requests took that give one answer.", Buckets: answerTimes}, []string{"route"}),
		parsed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_http_parses_total",
			Help: "Job files parsed in a child process for POST /v1/jobs; result is ok, invalid or failed."}, []string{"result"}),
	}
}

// Collectors are what this server measures of its answers, for a registry.
func (s *Server) Collectors() []prometheus.Collector {
	m := s.metrics
	return []prometheus.Collector{m.calls, m.took, m.streams, m.requests, m.answered, m.parsed}
}

// methodLabel names a gRPC method that there is, "Muster/Submit"; else other.
func methodLabel(full string) string {
	if _, known := actions[full]; !known {
		return "other"
	}
	return strings.TrimPrefix(full, "/"+apiVersion+".")
}

// codeLabel is ok, canceled (the caller went away), or the kind of err.
func codeLabel(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return string(muster.KindUnavailable)
	}
	return wire.ErrorOf(wire.FromStatus(err)).GetKind()
}

// call counts one call of a gRPC method.
func (m *metrics) call(method string, began time.Time, err error) {
	m.calls.WithLabelValues(method, codeLabel(err)).Inc()
	m.took.WithLabelValues(method).Observe(time.Since(began).Seconds())
}

// counted is the answer to a request, with its status once there is one.
type counted struct {
	http.ResponseWriter
	status int
	flowed bool // it was flushed on the way: a stream, whose length is its reader's
}

func (c *counted) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *counted) Write(p []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	return c.ResponseWriter.Write(p)
}

// FlushError flushes; http.ResponseController finds it.
func (c *counted) FlushError() error {
	c.flowed = true
	return http.NewResponseController(c.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController reach the connection.
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// counting counts requests by the route that label gives, after next has answered.
func (m *metrics) counting(next http.Handler, label func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		answer := &counted{ResponseWriter: w}
		next.ServeHTTP(answer, r)
		route, method := label(r), r.Method
		switch method {
		case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		default:
			method = "other"
		}
		status := answer.status
		if status == 0 {
			status = http.StatusOK
		}
		m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
		if !answer.flowed {
			m.answered.WithLabelValues(route).Observe(time.Since(began).Seconds())
		}
	})
}
