package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// interrupt starts a verb that follows a job, waits until it has printed the job's first line, and interrupts it; twice: again
// when it says that it is detached. It gives its exit code and stderr.
func interrupt(t *testing.T, environment []string, times int, args ...string) (code int, said string) {
	t.Helper()
	command := exec.Command("muster", args...)
	command.Env = append(os.Environ(), environment...)
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "here\n" {
		t.Fatalf("muster %s printed %q: %v", strings.Join(args, " "), line, err)
	}
	if err := command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		all.WriteString(lines.Text() + "\n")
		if times == 2 && strings.Contains(lines.Text(), "detached") {
			if err := command.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = command.Wait() // its code is what counts
	return command.ProcessState.ExitCode(), all.String()
}

// Ctrl-C in an attached run or in logs -f detaches and says so, with code 130; a second one cancels the job: 120.
func TestCtrlC(t *testing.T) {
	environment := startDev(t)
	state := func(job string) string {
		t.Helper()
		command := exec.Command("muster", "wait", "--timeout", "30s", "-o", "json", job)
		command.Env = append(os.Environ(), environment...)
		output, _ := command.Output() // the job's own code
		return string(output)
	}
	for _, verb := range []string{"run", "logs -f"} {
		t.Run(verb, func(t *testing.T) {
			follow := func(name string) []string {
				script := []string{"--name", name, "--", "sh", "-c", "echo here; sleep 5"}
				if verb == "run" {
					return append([]string{"run"}, script...)
				}
				command := exec.Command("muster", append([]string{"run", "-d"}, script...)...)
				command.Env = append(os.Environ(), environment...)
				if output, err := command.CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, output)
				}
				return []string{"logs", "-f", name}
			}
			code, said := interrupt(t, environment, 1, follow("once")...)
			if code != 130 || !strings.Contains(said, "detached") {
				t.Errorf("after one Ctrl-C: code %d, %q", code, said)
			}
			if got := state("once"); !strings.Contains(got, `"succeeded"`) {
				t.Errorf("the job that was left: %s", got)
			}
			code, said = interrupt(t, environment, 2, follow("twice")...)
			if code != 120 || !strings.Contains(said, "cancelled") {
				t.Errorf("after two Ctrl-C: code %d, %q", code, said)
			}
			if got := state("twice"); !strings.Contains(got, `"cancelled"`) {
				t.Errorf("the job that was cancelled: %s", got)
			}
		})
	}
}
