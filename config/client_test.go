package config

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster"
)

func TestWhereAClientFindsItsCluster(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.hcl")
	content := "current = \"lab\"\ncontext \"lab\" {\n  addresses = [\"s1.lab\", \"s2.lab:99\"]\n}\ncontext \"dev\" {\n  addresses = [\"unix:///d/api.sock\"]\n}\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "api.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	none := filepath.Join(dir, "none.hcl")
	for _, c := range []struct {
		what         string
		from         AddressSources
		env          map[string]string
		file, socket string
		want         string
		kind         muster.Kind
	}{
		{"a flag before all", AddressSources{Flag: "h1,h2:7", Context: "lab"}, map[string]string{"MUSTER_ADDR": "e"}, file, socket, "h1:4691 h2:7", ""},
		{"the context flag before the environment", AddressSources{Context: "dev"}, map[string]string{"MUSTER_ADDR": "e"}, file, socket, "unix:///d/api.sock", ""},
		{"the environment before the file", AddressSources{}, map[string]string{"MUSTER_ADDR": "e, unix:///x"}, file, socket, "e:4691 unix:///x", ""},
		{"the environment's context", AddressSources{}, map[string]string{"MUSTER_CONTEXT": "dev"}, file, socket, "unix:///d/api.sock", ""},
		{"the file's current one", AddressSources{}, nil, file, socket, "s1.lab:4691 s2.lab:99", ""},
		{"the login node's socket", AddressSources{}, nil, none, socket, "unix://" + socket, ""},
		{"nothing", AddressSources{}, nil, none, none, "no cluster configured on this machine. Try: muster dev", muster.KindUnavailable},
		{"an unknown context", AddressSources{Context: "x"}, nil, file, socket, `--context: there is no context "x": there are lab, dev`, muster.KindUsage},
		{"a URL", AddressSources{Flag: "http://h:4690"}, nil, file, socket, "URL", muster.KindUsage},
		{"a bad port", AddressSources{}, map[string]string{"MUSTER_ADDR": "h:x"}, file, socket, "MUSTER_ADDR", muster.KindUsage},
	} {
		r := resolver{path: c.file, socket: c.socket, getenv: func(k string) string { return c.env[k] }}
		got, err := r.resolve(c.from)
		if c.kind != "" {
			if err == nil || muster.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %s: %s", c.what, err, c.kind, c.want)
			}
		} else if err != nil || strings.Join(got.Addresses, " ") != c.want || got.Source == "" {
			t.Errorf("%s: %v, %v; want %s", c.what, got, err, c.want)
		}
	}
}

func TestASavedContextIsCurrentUntilForgotten(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	path := filepath.Join(home, "muster", "config.hcl")
	forget, err := SaveContext("dev", []string{"127.0.0.1:4691"})
	if err != nil {
		t.Fatal(err)
	}
	c, diags := LoadClient(path)
	if diags.HasErrors() || c.Current != "dev" || !slices.Equal(c.Contexts[0].Addresses, []string{"127.0.0.1:4691"}) {
		t.Fatalf("got %+v, %v", c, diags)
	}
	forget()
	if c, diags = LoadClient(path); diags.HasErrors() || c.Current != "" || len(c.Contexts) != 0 {
		t.Fatalf("forgotten, got %+v, %v", c, diags)
	}
}

func TestSavingKeepsWhatElseIsInTheFile(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	path := filepath.Join(home, "muster", "config.hcl")
	before := "# mine\ncurrent = \"lab\"\ncontext \"lab\" {\n  addresses = [\"s1.lab\"] # the first\n}\n"
	if err := write(path, []byte(before)); err != nil {
		t.Fatal(err)
	}
	forget, err := SaveContext("dev", []string{"127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	c, diags := LoadClient(path)
	if diags.HasErrors() || c.Current != "dev" || len(c.Contexts) != 2 {
		t.Fatalf("got %+v, %v", c, diags)
	}
	forget()
	after, err := os.ReadFile(path)
	if err != nil || strings.TrimSpace(string(after)) != strings.TrimSpace(before) {
		t.Errorf("afterwards the file is\n%s\nand was\n%s", after, before)
	}
	again, err := SaveContext("dev", []string{"127.0.0.1:2"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := SaveContext("dev", []string{"127.0.0.1:3"}); err != nil {
		t.Fatal(err)
	}
	again()
	if c, _ := LoadClient(path); c == nil || c.Current != "dev" {
		t.Errorf("what a later one saved was taken away: %+v", c)
	}
}

func TestABrokenClientFileIsSaidAndLeftAlone(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	path := filepath.Join(home, "muster", "config.hcl")
	for content, want := range map[string]string{
		"current = \"x\"\n":    "no context",
		"context \"a\" {\n}\n": "addresses",
		"context \"a\" {":      "Block without its end",
		"contxt \"a\" {\n}\n":  "Did you mean",
		"current = \"a\"\ncontext \"a\" {\n  addresses = [\"a\"]\n  token_file = \"x\"\n}\n": "not supported yet",
	} {
		if err := write(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		_, err := SaveContext("dev", []string{"h"})
		if err == nil || muster.KindOf(err) != muster.KindInvalid || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path+":") {
			t.Errorf("%q: %v, want an error with %q and the place", content, err, want)
		}
		if now, _ := os.ReadFile(path); string(now) != content {
			t.Errorf("%q was changed to %q", content, now)
		}
	}
}
