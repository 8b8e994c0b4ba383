package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// httpLogs tells what a job's ranks have printed, as text or an object a line.
func (s *Server) httpLogs(w http.ResponseWriter, r *request) error {
	ref, err := jobParameter(r)
	if err != nil {
		return err
	}
	q := &wire.LogsRequest{Job: ref, Attempt: uint32(r.count("attempt")), LastLines: r.count("lines"), Follow: r.values.Get("follow") == "true"}
	for _, list := range r.values["rank"] {
		if err := ranksOf(q, list); err != nil {
			return err
		}
	}
	job, err := s.GetJob(r.Context(), &wire.GetJobRequest{Job: ref, Stale: r.stale})
	if err != nil {
		return err
	}
	if _, err := s.local.Read().LogTargets(muster.JobID(job.Id), q); err != nil { // told while there still is a status to give
		return err
	}
	// A client that follows goes on elsewhere when this server ends.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	printer := &httpLog{ctx: ctx, w: w, flush: http.NewResponseController(w).Flush, only: r.values.Get("stream"),
		prefix: job.RankCount > 1 && len(q.Ranks) != 1, partial: map[logSource][]byte{}}
	if printer.encoder = nil; r.values.Get("format") == "jsonl" {
		printer.encoder = json.NewEncoder(w)
		printer.encoder.SetEscapeHTML(false)
	}
	err = s.Logs(q, printer)
	if err != nil && !printer.begun {
		return err
	}
	for source := range printer.partial {
		printer.rest(source) // its reader knows no later chunk
	}
	return nil // an error behind the first line can't be told: the client sees that the body ends early
}

// ranksOf reads ?rank=: a list of numbers, all, or failed.
func ranksOf(q *wire.LogsRequest, list string) error {
	for _, word := range strings.Split(list, ",") {
		rank, err := strconv.ParseInt(word, 10, 32)
		switch {
		case word == "failed":
			q.Failed = true
		case word == "all":
		case err != nil || rank < 0:
			return muster.Errorf(muster.KindUsage, "rank %q is not the number of a rank", word).WithHint("Say numbers as in 0,7, or all, or failed")
		default:
			q.Ranks = append(q.Ranks, rank)
		}
	}
	return nil
}

// longestLine bounds what is kept of a line whose end has not come.
const longestLine = 64 << 10

type logSource struct {
	alloc  muster.AllocID
	stderr bool
}

// httpLog is the stream that Logs sends to, written as a body of lines. Logs sends one chunk at a time.
type httpLog struct {
	grpc.ServerStream
	ctx     context.Context
	w       http.ResponseWriter
	flush   func() error
	encoder *json.Encoder // nil: text
	only    string        // stdout, stderr, "" = both
	prefix  bool
	begun   bool
	partial map[logSource][]byte
	last    map[logSource]*wire.LogChunk
	failed  error
}

func (l *httpLog) Context() context.Context { return l.ctx }

// SendHeader begins the body: the client sees that it is served, however long the log is silent.
func (l *httpLog) SendHeader(metadata.MD) error {
	l.begun = true
	kind := "text/plain; charset=utf-8"
	if l.encoder != nil {
		kind = "application/jsonl"
	}
	l.w.Header().Set("Content-Type", kind)
	l.w.Header().Set("X-Content-Type-Options", "nosniff")
	l.w.WriteHeader(http.StatusOK)
	return l.flush()
}

func (l *httpLog) Send(c *wire.LogChunk) error {
	id := allocID(c.GetAlloc())
	if c.GetNote() != "" || c.GetLost() > 0 {
		l.line(c, "", c.GetNote(), c.GetLost())
	}
	if c.GetEnd() {
		for _, stderr := range []bool{false, true} {
			l.rest(logSource{id, stderr})
		}
		return l.flushed()
	}
	stream := streamOf(c.GetStderr())
	if len(c.GetData()) == 0 || l.only != "" && l.only != stream {
		return l.flushed()
	}
	source := logSource{id, c.GetStderr()}
	data := append(l.partial[source], c.GetData()...)
	for {
		end := bytes.IndexByte(data, '\n')
		next := end + 1
		if end < 0 && len(data) >= longestLine {
			end, next = longestLine, longestLine
		}
		if end < 0 {
			break
		}
		l.line(c, string(data[:end]), "", 0)
		data = data[next:]
	}
	delete(l.partial, source)
	if len(data) > 0 {
		l.partial[source] = bytes.Clone(data)
		if l.last == nil {
			l.last = map[logSource]*wire.LogChunk{}
		}
		l.last[source] = c
	}
	return l.flushed()
}

// rest tells a last line that has no end.
func (l *httpLog) rest(source logSource) {
	if text := l.partial[source]; len(text) > 0 {
		l.line(l.last[source], string(text), "", 0)
	}
	delete(l.partial, source)
}

func (l *httpLog) flushed() error {
	if l.failed == nil {
		l.failed = l.flush()
	}
	return l.failed
}

// line writes one line.
func (l *httpLog) line(c *wire.LogChunk, text, note string, lost int64) {
	if l.failed != nil {
		return
	}
	if l.encoder != nil {
		l.failed = l.encoder.Encode(wire.LogLineJSON{Group: c.GetGroup(), Rank: c.GetRank(), Attempt: c.GetAttempt(), Node: c.GetNode(),
			Stream: streamOf(c.GetStderr()), Time: wire.Moment(c.GetTime()), Text: text, Note: note, Lost: lost})
		return
	}
	switch {
	case note != "":
		text = "-- " + note + " --"
	case lost > 0:
		text = fmt.Sprintf("-- %s of rank %d's older output are gone --", muster.Bytes(lost).Human(), c.GetRank())
	case l.prefix:
		text = c.Prefix() + text
	}
	_, l.failed = io.WriteString(l.w, text+"\n")
}

func streamOf(stderr bool) string {
	if stderr {
		return "stderr"
	}
	return "stdout"
}
