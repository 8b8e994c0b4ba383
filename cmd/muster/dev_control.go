package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/musterhpc/muster"
)

// devRecord is what a running `muster dev` leaves for its sub-verbs.
type devRecord struct {
	Pid     int    `json:"pid"`
	Dir     string `json:"dir"`
	Control string `json:"control"` // unix socket
	// Temporary: the directory was made by that muster dev, and is of no use without it.
	Temporary bool `json:"temporary"`
}

func devRecordPath() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "muster", "dev.json"), nil
}

func readDevRecord() (*devRecord, error) {
	path, err := devRecordPath()
	if err != nil {
		return nil, err
	}
	body, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, muster.Errorf(muster.KindNotFound, "no muster dev runs here").WithHint("Start one: muster dev")
	}
	if err != nil {
		return nil, err
	}
	record := new(devRecord)
	if err := json.Unmarshal(body, record); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return record, nil
}

func (r *devRecord) write() error {
	path, err := devRecordPath()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(path, body, 0o600)
}

// remove forgets the record, unless another `muster dev` has written its own since.
func (r *devRecord) remove() {
	if now, err := readDevRecord(); err == nil && now.Pid == r.Pid {
		if path, err := devRecordPath(); err == nil {
			_ = os.Remove(path)
		}
	}
}

// devAgentStatus is a line of `dev status`.
type devAgentStatus struct {
	Name     string `json:"name"`
	Role     string `json:"role"`
	Pid      int    `json:"pid"` // 0: it does not run just now
	Address  string `json:"address"`
	HTTP     string `json:"http,omitempty"`
	Leader   bool   `json:"leader"`
	Side     string `json:"side,omitempty"` // the names on its side of a network that is cut
	Restarts int    `json:"restarts"`
	Log      string `json:"log"`
}

// serveControl answers the sub-verbs over the control socket until ctx ends. What it starts lives as long as children.
func (c *devCluster) serveControl(ctx, children context.Context, socket string, leader func(context.Context) (string, error), stop func()) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, value any, err error) {
		if err != nil {
			status := http.StatusConflict
			if muster.KindOf(err) == muster.KindNotFound {
				status = http.StatusNotFound
			}
			w.WriteHeader(status)
			value = err.Error()
		}
		_ = json.NewEncoder(w).Encode(value) // the client that went away doesn't want it
	}
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		leads, _ := leader(r.Context()) // none just now is a state, not an error
		answer(w, c.status(leads), nil)
	})
	mux.HandleFunc("POST /kill-leader", func(w http.ResponseWriter, r *http.Request) {
		name, err := c.killLeader(r.Context(), leader)
		answer(w, name, err)
	})
	mux.HandleFunc("POST /kill-worker", func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Query().Get("name")
		a, err := c.find(name)
		if err == nil && a.server {
			err = fmt.Errorf("%s is a server, not a worker", name)
		}
		if err == nil {
			err = a.kill()
		}
		answer(w, name, err)
	})
	mux.HandleFunc("POST /add-worker", func(w http.ResponseWriter, _ *http.Request) {
		name, err := c.addWorker(children)
		err = errors.Join(err, c.tellCuts()) // of where it is
		answer(w, name, err)
	})
	mux.HandleFunc("POST /partition", func(w http.ResponseWriter, r *http.Request) {
		said, err := c.partition(r.URL.Query()["side"], func() (string, error) { return leader(r.Context()) })
		answer(w, said, err)
	})
	mux.HandleFunc("POST /heal", func(w http.ResponseWriter, _ *http.Request) {
		said, err := c.heal()
		answer(w, said, err)
	})
	mux.HandleFunc("POST /start", func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Query().Get("name")
		answer(w, name, c.startAgain(children, name))
	})
	mux.HandleFunc("POST /stop", func(w http.ResponseWriter, r *http.Request) {
		answer(w, "stopping", nil)
		stop()
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		<-ctx.Done()
		patience, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(patience) != nil { // lets who asked for the end have the answer
			_ = server.Close()
		}
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-closed
	return nil
}

func (c *devCluster) status(leader string) []devAgentStatus {
	var out []devAgentStatus
	for _, a := range c.all() {
		role := "worker"
		if a.server {
			role = "server"
		}
		a.mu.Lock()
		restarts := a.restarts
		a.mu.Unlock()
		c.mu.Lock()
		side := strings.Join(c.sideOf(a.name), ",")
		c.mu.Unlock()
		out = append(out, devAgentStatus{Name: a.name, Role: role, Pid: a.pid(), Address: a.rpc, HTTP: a.http,
			Leader: a.server && a.rpc == leader, Side: side, Restarts: restarts, Log: a.log()})
	}
	return out
}

// electionWithin bounds how long a kill waits for a leader to kill: an overloaded machine may be in the middle of an election.
const electionWithin = 10 * time.Second

// killLeader is kill -9 of whichever server leads.
func (c *devCluster) killLeader(ctx context.Context, leader func(context.Context) (string, error)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, electionWithin)
	defer cancel()
	for {
		address, err := leader(ctx)
		for _, a := range c.all() {
			if err == nil && a.server && a.rpc == address {
				if err = a.kill(); err == nil {
					return a.name, nil
				}
			}
		}
		if err == nil {
			err = fmt.Errorf("%s leads", address)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return "", fmt.Errorf("no server of this dev cluster could be killed as the leader within %s: %w", electionWithin, err)
		}
	}
}

// call asks the running `muster dev`.
func (r *devRecord) call(ctx context.Context, method, path string, query url.Values, answer any) error {
	client := &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", r.Control)
	}}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, method, "http://dev"+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return muster.Errorf(muster.KindUnavailable, "the muster dev with pid %d does not answer: %v", r.Pid, err).
			WithHint("Start a new one: muster dev")
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		var message string
		if err := json.NewDecoder(response.Body).Decode(&message); err != nil {
			message = response.Status
		}
		kind := muster.KindError
		if response.StatusCode == http.StatusNotFound {
			kind = muster.KindNotFound
		}
		return muster.Errorf(kind, "%s", message)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}
