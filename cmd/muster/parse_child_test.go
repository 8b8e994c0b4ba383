package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/musterhpc/muster"
)

// beChild makes of this test binary the child that a test asked for.
func beChild() {
	if len(os.Args) < 2 {
		return
	}
	switch os.Args[1] {
	case parseVerb:
		main()
	case "eat-cpu":
		fail(limitSelf())
		for n := 0; ; n++ {
			_ = fmt.Sprint(n)
		}
	case "eat-memory":
		fail(limitSelf())
		var all [][]byte
		for range 4 * parseMemory >> 20 {
			all = append(all, make([]byte, 1<<20))
		}
		fail(fmt.Errorf("%d MiB were to be had", len(all)))
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func TestAJobFileIsReadInAChild(t *testing.T) {
	jobs, diagnostics, err := parseAway(t.Context(), "job \"a\" {\n  task \"t\" {\n    command = \"true\"\n  }\n}\n", nil)
	if err != nil || len(diagnostics) > 0 || len(jobs) != 1 || jobs[0].Name != "a" {
		t.Fatalf("%v %v %v", jobs, diagnostics, err)
	}
	const varied = "variable \"n\" {\n  type = number\n}\njob \"a\" {\n  count = var.n\n  task \"t\" {\n    command = \"true\"\n  }\n}\n"
	jobs, diagnostics, err = parseAway(t.Context(), varied, map[string]string{"n": "3"})
	if err != nil || len(diagnostics) > 0 || len(jobs) != 1 || jobs[0].Groups[0].Count != 3 {
		t.Errorf("%v %v %v", jobs, diagnostics, err)
	}
	const reads = "job \"a\" {\n  task \"t\" {\n    script = file(\"/etc/passwd\")\n  }\n}\n"
	if _, diagnostics, err = parseAway(t.Context(), reads, nil); err != nil || len(diagnostics) == 0 {
		t.Errorf("a server's files are not its clients': %v", err)
	}
	_, diagnostics, err = parseAway(t.Context(), "job \"a\" {\n  nodes = 2\n}\n", nil)
	if err != nil || len(diagnostics) == 0 || diagnostics[0].Line != 2 || !strings.Contains(diagnostics[0].Detail, "count = 2") {
		t.Errorf("%v %v", diagnostics, err)
	}
}

func TestAJobFileThatAsksForTooMuchEndsItsReaderAlone(t *testing.T) {
	for verb, want := range map[string]string{"eat-memory": "memory", "eat-cpu": "CPU"} {
		_, _, err := readAway(t.Context(), verb, "", nil)
		if muster.KindOf(err) != muster.KindInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", verb, err)
		}
	}
	// Files that are hard to read end in an answer too, whichever it is.
	for what, source := range map[string]string{
		"brackets": "job \"a\" {\n  x = " + strings.Repeat("[", 2<<20),
		"blocks":   strings.Repeat("a {\n", 500_000),
		"braces":   "job \"a\" {\n  x = \"" + strings.Repeat("${", 1<<20),
	} {
		jobs, diagnostics, err := parseAway(t.Context(), source, nil)
		if len(jobs) > 0 || err == nil && len(diagnostics) == 0 || err != nil && muster.KindOf(err) != muster.KindInvalid {
			t.Errorf("%s: %v %v", what, diagnostics, err)
		}
	}
}
