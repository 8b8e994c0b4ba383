package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config/schema"
)

// Client is the client's file: the clusters that it knows by name.
type Client struct {
	Current  string // the context that is used when none is named; "" = none
	Contexts []Context
}

// Context is a cluster as a client reaches it.
type Context struct {
	Name      string
	Addresses []string // "host:port" or "unix:///path"
}

var clientTable = schema.Body{
	Attrs: []schema.Attr{{Name: "current", Field: "Current", Doc: "the context that is used when none is named"}},
	Blocks: []schema.Block{{Name: "context", Label: "name", LabelAs: "Name", Field: "Contexts", Many: true, Path: "contexts", Doc: "a cluster",
		Body: &schema.Body{Attrs: []schema.Attr{
			{Name: "addresses", Kind: schema.Strings, Field: "Addresses", Required: true, Positive: true, Doc: "of its servers: host[:4691] or unix:///path"},
			{Name: "token_file", Kind: schema.Any, Later: true, Doc: "who one is there"},
		}}}},
}

// ClientPath is where the client's file is: ~/.config/muster/config.hcl, or below XDG_CONFIG_HOME.
func ClientPath() (string, error) {
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "muster", "config.hcl"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("where is your configuration? %w", err)
	}
	return filepath.Join(home, ".config", "muster", "config.hcl"), nil
}

// LoadClient reads the client's file. One that isn't there is empty.
func LoadClient(path string) (*Client, hcl.Diagnostics) {
	src, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Client{}, nil
	}
	if err != nil {
		return nil, hcl.Diagnostics{schema.About(path, "No configuration", "%s.", err)}
	}
	c, _, diags := parseClient(path, src)
	if diags.HasErrors() {
		return nil, diags
	}
	return c, diags
}

func parseClient(path string, src []byte) (*Client, *schema.Decoder, hcl.Diagnostics) {
	body, diags := schema.Parse(path, src)
	if body == nil {
		return nil, nil, diags
	}
	c := &Client{}
	d := &schema.Decoder{Source: src, Root: &clientTable, Diags: diags}
	d.Decode(body, &clientTable, "", c)
	for i := range c.Contexts {
		at := fmt.Sprintf("contexts[%d]", i)
		if slices.ContainsFunc(c.Contexts[:i], func(o Context) bool { return o.Name == c.Contexts[i].Name }) {
			d.Error(at+".name", "Two contexts of one name", "There is a context %q already.", c.Contexts[i].Name)
		}
		for k, address := range c.Contexts[i].Addresses {
			full, err := clientAddress(address)
			if err != nil {
				d.Error(fmt.Sprintf("%s.addresses[%d]", at, k), "Wrong value for addresses", "%s.", err)
			}
			c.Contexts[i].Addresses[k] = full
		}
	}
	if _, err := c.find(c.Current); c.Current != "" && err != nil {
		d.Error("current", "Unknown context", "%s.", upper(err.Error()))
	}
	return c, d, d.Diags
}

func (c *Client) find(name string) (*Context, error) {
	var names []string
	for i := range c.Contexts {
		if c.Contexts[i].Name == name {
			return &c.Contexts[i], nil
		}
		names = append(names, c.Contexts[i].Name)
	}
	if names == nil {
		return nil, fmt.Errorf("there is no context %q: there is none at all", name)
	}
	return nil, fmt.Errorf("there is no context %q: there are %s", name, strings.Join(names, ", "))
}

// SaveContext puts a context into the client's file and makes it the current one. What else is in the file stays, comments too.
// forget takes it back, unless somebody has changed it since.
func SaveContext(name string, addresses []string) (forget func(), err error) {
	path, err := ClientPath()
	if err != nil {
		return nil, err
	}
	before, diags := LoadClient(path)
	if diags.HasErrors() {
		return nil, invalid(diags)
	}
	if err := edit(path, name, addresses, name); err != nil {
		return nil, err
	}
	return func() {
		now, diags := LoadClient(path)
		if diags.HasErrors() {
			return
		}
		if c, err := now.find(name); err != nil || !slices.Equal(c.Addresses, completed(addresses)) {
			return
		}
		current := now.Current
		if current == name {
			if current = before.Current; current == name {
				current = ""
			}
		}
		_ = edit(path, name, nil, current) // a context that stays behind says so when it is used
	}, nil
}

// completed gives addresses as LoadClient reads them.
func completed(addresses []string) []string {
	out := make([]string, len(addresses))
	for i, a := range addresses {
		out[i], _ = clientAddress(a) // "" where it makes no sense: equal to nothing
	}
	return out
}

// edit sets a context (without addresses: removes it) and the current one.
func edit(path, name string, addresses []string, current string) error {
	src, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, diags := hclwrite.ParseConfig(src, path, hcl.InitialPos)
	if diags.HasErrors() {
		return invalid(diags)
	}
	body := file.Body()
	if current == "" {
		body.RemoveAttribute("current")
	} else {
		body.SetAttributeValue("current", cty.StringVal(current))
	}
	block := body.FirstMatchingBlock("context", []string{name})
	switch {
	case len(addresses) == 0 && block != nil:
		body.RemoveBlock(block)
	case len(addresses) > 0:
		if block == nil {
			block = body.AppendNewBlock("context", []string{name})
		}
		var list []cty.Value
		for _, a := range addresses {
			list = append(list, cty.StringVal(a))
		}
		block.Body().SetAttributeValue("addresses", cty.ListVal(list))
	}
	return write(path, hclwrite.Format(file.Bytes()))
}

func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return renameio.WriteFile(path, content, 0o600)
}

// AddressSources are what a client is told on its command line. The rest it finds: environment, file, login node's socket.
type AddressSources struct {
	Flag    string // --addr
	Context string // --context
}

// LoginSocket is where an agent of this machine, with data_dir = "/var/lib/muster", can be asked.
const LoginSocket = "/var/lib/muster/api.sock"

// Found is where the cluster is, and who said so.
type Found struct {
	Addresses []string
	Source    string // "--addr", "MUSTER_ADDR", "the context dev of FILE", …
}

// Resolve says where the cluster is: flags, then environment, then the client's file, then the login node's socket. None:
// KindUnavailable.
func Resolve(from AddressSources) (*Found, error) {
	path, pathErr := ClientPath()
	return resolver{path: path, pathErr: pathErr, socket: LoginSocket, getenv: os.Getenv}.resolve(from)
}

type resolver struct {
	path    string // of the client's file
	pathErr error
	socket  string
	getenv  func(string) string
}

func (r resolver) resolve(from AddressSources) (*Found, error) {
	switch {
	case from.Flag != "":
		return split("--addr", from.Flag)
	case from.Context != "":
		return r.context("--context", from.Context)
	case r.getenv("MUSTER_ADDR") != "":
		return split("MUSTER_ADDR", r.getenv("MUSTER_ADDR"))
	case r.getenv("MUSTER_CONTEXT") != "":
		return r.context("MUSTER_CONTEXT", r.getenv("MUSTER_CONTEXT"))
	}
	if r.pathErr == nil {
		c, diags := LoadClient(r.path)
		if diags.HasErrors() {
			return nil, invalid(diags)
		}
		if c.Current != "" {
			current, err := c.find(c.Current)
			if err != nil {
				return nil, err
			}
			return &Found{current.Addresses, fmt.Sprintf("the context %s, current in %s", c.Current, r.path)}, nil
		}
	}
	if info, err := os.Stat(r.socket); err == nil && info.Mode().Type() == fs.ModeSocket {
		return &Found{[]string{"unix://" + r.socket}, "the agent of this machine"}, nil
	}
	return nil, muster.Errorf(muster.KindUnavailable, "no cluster configured on this machine").WithHint("Try: muster dev")
}

func (r resolver) context(source, name string) (*Found, error) {
	if r.pathErr != nil {
		return nil, r.pathErr
	}
	c, diags := LoadClient(r.path)
	if diags.HasErrors() {
		return nil, invalid(diags)
	}
	found, err := c.find(name)
	if err != nil {
		return nil, muster.Errorf(muster.KindUsage, "%s: %v", source, err)
	}
	return &Found{found.Addresses, fmt.Sprintf("%s: the context %s of %s", source, name, r.path)}, nil
}

// split reads a list of addresses from a flag or the environment.
func split(source, list string) (*Found, error) {
	out := &Found{Source: source}
	for a := range strings.SplitSeq(list, ",") {
		full, err := clientAddress(strings.TrimSpace(a))
		if err != nil {
			return nil, muster.Errorf(muster.KindUsage, "%s: %v", source, err)
		}
		out.Addresses = append(out.Addresses, full)
	}
	return out, nil
}

// clientAddress completes "host" with the RPC port; sockets stay.
func clientAddress(s string) (string, error) {
	if path, ok := strings.CutPrefix(s, "unix://"); ok {
		if !filepath.IsAbs(path) {
			return "", fmt.Errorf("%q names no absolute path, as in unix:///run/muster.sock", s)
		}
		return s, nil
	}
	if strings.Contains(s, "://") {
		return "", fmt.Errorf("%q is a URL: say HOST, HOST:PORT (the RPC port, 4691) or unix:///PATH", s)
	}
	return withPort(s, DefaultRPCPort)
}

// invalid is a broken file as one error, for who can't print diagnostics.
func invalid(diags hcl.Diagnostics) error {
	var text strings.Builder
	_ = schema.WriteGCC(&text, diags[:1]) // a Builder takes everything
	return muster.Errorf(muster.KindInvalid, "%s", strings.TrimSpace(text.String()))
}
