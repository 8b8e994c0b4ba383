package rpc

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// httpEvents tells what happened, one object a line; with follow it goes on until the client or this server ends it.
func (s *Server) httpEvents(w http.ResponseWriter, r *request) error {
	q := &wire.EventsRequest{Object: r.values.Get("object"), Stale: r.stale, Follow: r.values.Get("follow") == "true"}
	if text := r.values.Get("since"); text != "" {
		since, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return muster.Errorf(muster.KindUsage, "since %q is no time", text).WithHint("Say it as in 2026-12-24T18:00:00Z")
		}
		q.Since = since.UnixMilli()
	}
	if text := r.values.Get("after"); text != "" {
		index, nth, is := strings.Cut(text, ".")
		i, err1 := strconv.ParseUint(index, 10, 64)
		n, err2 := strconv.ParseUint(nth, 10, 32)
		if !is || err1 != nil || err2 != nil {
			return muster.Errorf(muster.KindUsage, "after %q is not the place of an event", text).WithHint("Say its index, a point, and its nth, as in 1042.0")
		}
		q.AfterIndex, q.AfterNth = i, uint32(n)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	answer := http.NewResponseController(w)
	begun := false
	begin := func() error {
		begun = true
		w.Header().Set("Content-Type", "application/jsonl")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(http.StatusOK)
		return answer.Flush()
	}
	lines := json.NewEncoder(w)
	lines.SetEscapeHTML(false)
	err := s.events(ctx, q, begin, func(e *wire.EventInfo) error {
		if err := lines.Encode(wire.EventJSONOf(e)); err != nil || !q.Follow {
			return err
		}
		return answer.Flush()
	})
	if begun {
		return nil // behind the first line an error can't be told: the client sees that the body ends
	}
	return err
}
