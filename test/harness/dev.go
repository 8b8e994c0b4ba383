package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster/rpc"
)

// Patience bounds every wait of a test: only a broken cluster takes as long.
const Patience = 60 * time.Second

// Cluster is a running `muster dev`: servers s1…, workers w1…, each a process of its own.
type Cluster struct {
	t      testing.TB
	Dir    string
	binary string
	env    []string
	dev    *exec.Cmd
	output *bytes.Buffer
}

// An Agent is a line of `muster dev status`.
type Agent struct {
	Name    string `json:"name"`
	Role    string `json:"role"`
	Pid     int    `json:"pid"`
	Address string `json:"address"`
	HTTP    string `json:"http"`
	Leader  bool   `json:"leader"`
	Log     string `json:"log"`
}

// Dev starts a cluster and waits until it is ready. flags go to `muster dev`. It ends with the test; when the test has failed,
// the ends of all logs are printed.
func Dev(t testing.TB, flags ...string) *Cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "mt-") // short: sockets live below it
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{t: t, Dir: dir, binary: Binary(t), output: new(bytes.Buffer)}
	c.env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+filepath.Join(dir, "config"), "MUSTER_ADDR=", "MUSTER_CONTEXT=")
	c.dev = exec.Command(c.binary, append([]string{"dev", "--data-dir", filepath.Join(dir, "d")}, flags...)...)
	c.dev.Env, c.dev.Stdout, c.dev.Stderr = c.env, c.output, c.output
	if err := c.dev.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.dev.Wait() }()
	t.Cleanup(func() {
		_ = c.dev.Process.Signal(syscall.SIGTERM)
		<-ended
		if t.Failed() {
			c.dumpLogs()
		}
		os.RemoveAll(dir)
	})
	Until(t, "muster dev is ready", func() error {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("muster dev ended: %v\n%s", err, c.output)
		default:
		}
		_, err := os.Stat(filepath.Join(dir, "config", "muster", "dev.json"))
		if err == nil {
			_, err = c.try("ps")
		}
		return err
	})
	return c
}

func (c *Cluster) dumpLogs() {
	paths, _ := filepath.Glob(filepath.Join(c.Dir, "d", "*", "*.log"))
	for _, path := range paths {
		body, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		lines := strings.Split(strings.TrimRight(string(body), "\n"), "\n")
		c.t.Logf("== %s\n%s", path, strings.Join(lines[max(0, len(lines)-60):], "\n"))
	}
}

// Until waits until check gives nil: it polls, since what it waits for happens in other processes.
func Until(t testing.TB, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not after %s: %s: %v", Patience, what, err)
		case <-ticker.C:
		}
	}
}

// Command is the binary with args, for tests that need its pipes.
func (c *Cluster) Command(args ...string) *exec.Cmd {
	command := exec.Command(c.binary, args...)
	command.Env, command.Dir = c.env, c.Dir
	return command
}

// Muster runs a verb and gives what it printed and its exit code.
func (c *Cluster) Muster(args ...string) (stdout, stderr string, code int) {
	c.t.Helper()
	command := c.Command(args...)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return out.String(), errs.String(), command.ProcessState.ExitCode()
}

func (c *Cluster) try(args ...string) (string, error) {
	out, errs, code := c.Muster(args...)
	if code != 0 {
		return "", fmt.Errorf("muster %s: exit code %d: %s", strings.Join(args, " "), code, errs)
	}
	return out, nil
}

// Must runs a verb that must succeed and gives its standard output.
func (c *Cluster) Must(args ...string) string {
	c.t.Helper()
	out, err := c.try(args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// File writes a file into the test's folder and gives its path.
func (c *Cluster) File(name, content string) string {
	c.t.Helper()
	path := filepath.Join(c.Dir, name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// Agents lists the processes of the cluster.
func (c *Cluster) Agents() []Agent {
	c.t.Helper()
	var list struct{ Items []Agent }
	if err := json.Unmarshal([]byte(c.Must("dev", "status", "-o", "json")), &list); err != nil {
		c.t.Fatal(err)
	}
	return list.Items
}

// Agent gives one by name.
func (c *Cluster) Agent(name string) Agent {
	c.t.Helper()
	for _, a := range c.Agents() {
		if a.Name == name {
			return a
		}
	}
	c.t.Fatalf("there is no %s", name)
	return Agent{}
}

// Client connects to all servers; closed with the test.
func (c *Cluster) Client() *rpc.Client {
	c.t.Helper()
	var addresses []string
	for _, a := range c.Agents() {
		if a.Role == "server" {
			addresses = append(addresses, a.Address)
		}
	}
	client, err := rpc.Dial(addresses, rpc.Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { client.Close() })
	return client
}

// Kill is kill -9 of one agent's process alone: a worker's supervisors live on.
func (c *Cluster) Kill(name string) {
	c.t.Helper()
	if err := syscall.Kill(c.Agent(name).Pid, syscall.SIGKILL); err != nil {
		c.t.Fatal(err)
	}
}
