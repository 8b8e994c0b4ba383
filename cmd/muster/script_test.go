package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/musterhpc/muster/wire"
)

// The scripts are the command line's promises, one file each. All of them talk to one dev cluster, made of this very binary.
func TestMain(m *testing.M) {
	// They mostly wait for processes: twice as many at a time as there are cores.
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	beChild()
	testscript.Main(m, map[string]func(){"muster": main})
}

func TestCommandLine(t *testing.T) {
	environment := startDev(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Vars = append(env.Vars, environment...)
			env.Vars = append(env.Vars, "EXAMPLES="+filepath.Join(root, "examples"), "EMPTY="+env.WorkDir)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "eventually": eventually, "agree": agree, "http": request},
	})
}

// startDev starts a cluster, which ends with the test, and gives the environment in which verbs find it.
func startDev(t *testing.T) (environment []string) {
	t.Helper()
	home, err := os.MkdirTemp("", "ms-") // short: sockets live below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	environment = []string{"HOME=" + home, "XDG_CONFIG_HOME=" + filepath.Join(home, ".config"), "MUSTER_ADDR=", "MUSTER_CONTEXT="}
	dev := exec.Command("muster", "dev", "--data-dir", filepath.Join(home, "d"))
	output := new(bytes.Buffer)
	dev.Env = append(os.Environ(), environment...)
	dev.Stdout, dev.Stderr = output, output
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- dev.Wait() }()
	t.Cleanup(func() {
		_ = dev.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	deadline := time.After(60 * time.Second)
	for {
		ps := exec.Command("muster", "ps")
		ps.Env = dev.Env
		if ps.Run() == nil {
			return environment
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("muster dev ended: %v\n%s", err, output)
		case <-deadline:
			t.Fatalf("muster dev isn't ready\n%s", output)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// exits runs a command and wants an exit code: exits 3 muster validate bad.hcl. Its output is compared as that of exec.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARG…]")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if exit, ok := err.(*exec.ExitError); ok {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("%s exited with %d, not %s", strings.Join(args[1:], " "), code, args[0])
	}
}

// request asks the HTTP API of the first server and wants a status: http 200 POST /v1/jobs jobs.json. stdout is the body.
func request(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || len(args) > 4 {
		ts.Fatalf("usage: http STATUS METHOD PATH [FILE]")
	}
	var dev struct{ Items []devAgentStatus }
	ts.Check(ts.Exec("muster", "dev", "status", "-o", "json"))
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &dev))
	var body io.Reader
	if len(args) == 4 {
		body = strings.NewReader(ts.ReadFile(args[3]))
	}
	question, err := http.NewRequest(args[1], "http://"+dev.Items[0].HTTP+args[2], body)
	ts.Check(err)
	question.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(question)
	ts.Check(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	ts.Check(err)
	_, err = ts.Stdout().Write(text)
	ts.Check(err)
	if fmt.Sprint(answer.StatusCode) != args[0] {
		ts.Fatalf("%s %s: %s, not %s: %s", args[1], args[2], answer.Status, args[0], text)
	}
}

// agree waits until one server leads and all have the same state at the same index.
func agree(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: agree")
	}
	for deadline := time.Now().Add(60 * time.Second); ; {
		var servers struct{ Items []wire.ServerJSON }
		ts.Check(ts.Exec("muster", "server", "ls", "-o", "json"))
		ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &servers))
		leaders, equal := 0, true
		for _, s := range servers.Items {
			if s.Leader {
				leaders++
			}
			equal = equal && s.Error == "" && s.Applied == servers.Items[0].Applied && s.Digest == servers.Items[0].Digest
		}
		if leaders == 1 && equal {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("the servers don't agree: %+v", servers.Items)
		}
	}
}

// eventually repeats a command until its standard output contains a text: eventually 'running' muster ps.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually TEXT COMMAND [ARG…]")
	}
	deadline := time.Now().Add(60 * time.Second)
	for {
		_ = ts.Exec(args[1], args[2:]...)
		if strings.Contains(ts.ReadFile("stdout"), args[0]) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s never printed %q", strings.Join(args[1:], " "), args[0])
		}
	}
}
