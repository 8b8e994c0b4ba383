package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/musterhpc/muster"
)

// streams are where a verb reads and writes: data to out, prose, progress and warnings to err.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// width is the terminal's width in columns, or 0 when w is no terminal.
func width(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil || columns <= 0 {
		return 80
	}
	return columns
}

func colours(w io.Writer) bool {
	return width(w) > 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// A table is what a verb lists. On a terminal: a header, aligned, fitted to the width, states coloured. Elsewhere: tab-separated,
// no header, nothing truncated.
type table struct {
	header []string
	rows   [][]string
	state  int   // the column whose words are coloured; -1 = none
	least  []int // columns to do without before any is shortened, in this order: what -o json is for
}

var stateColours = map[string]string{
	"running": "32", "ready": "32", "succeeded": "32", "healthy": "32", "idle": "2",
	"pending": "33", "preparing": "33", "stopping": "33", "held": "33", "draining": "33", "suspect": "33", "degraded": "33",
	"failed": "31", "lost": "31", "cancelled": "2", "drained": "2", "quarantined": "31",
}

func (t table) print(w io.Writer) error {
	columns := width(w)
	if columns == 0 {
		return t.lines(w, "\t")
	}
	widths := t.widths(columns)
	last := len(widths) - 1
	for k, row := range append([][]string{t.header}, t.rows...) {
		var line strings.Builder
		for i, cell := range row {
			if widths[i] == 0 {
				continue
			}
			line.WriteString(t.cell(w, cell, i, widths[i], k == 0))
			if i < last {
				line.WriteString("  ")
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// widths are those of the columns where a terminal has so many; 0 = left out.
func (t table) widths(columns int) []int {
	widths := make([]int, len(t.header))
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, i := range t.least {
		if used(widths) > columns {
			widths[i] = 0
		}
	}
	fit(widths, columns, t.state)
	return widths
}

// lines prints the rows as they are, with sep between the cells.
func (t table) lines(w io.Writer, sep string) error {
	for _, row := range t.rows {
		for i, cell := range row {
			row[i] = strings.NewReplacer("\t", " ", "\n", " ").Replace(cell)
		}
		if _, err := fmt.Fprintln(w, strings.Join(row, sep)); err != nil {
			return err
		}
	}
	return nil
}

// How far columns shrink before one is left out: the last, which says why, and the others.
const (
	narrowestLast = 20
	narrowest     = 12
)

// fit shrinks columns, the widest first, until all of them fit into so many columns of the terminal. When that is not enough,
// those before the last are left out (0), from the right, but never the first, which names the thing, nor its state.
func fit(widths []int, columns, state int) {
	last := len(widths) - 1
	wish := widths[last]
	floor := make([]int, len(widths))
	for i, n := range widths {
		switch i {
		case 0:
			floor[i] = n
		case state:
			floor[i] = min(n, narrowestLast) // the state's word is shorter; a reason may follow it
		case last:
			floor[i] = min(n, narrowestLast)
		default:
			floor[i] = min(n, narrowest)
		}
	}
	for {
		used, widest := used(widths), -1
		for i, n := range widths {
			if n > floor[i] && (widest < 0 || n >= widths[widest]) {
				widest = i
			}
		}
		switch {
		case used <= columns:
			widths[last] = min(wish, widths[last]+columns-used) // what one left out was wider than needed
			return
		case widest >= 0:
			widths[widest]--
			continue
		}
		i := last - 1
		for i > 0 && (widths[i] == 0 || i == state) {
			i--
		}
		if i <= 0 {
			return
		}
		widths[i], floor[i] = 0, 0
	}
}

// used is how many columns of the terminal so wide columns take, with what is between them.
func used(widths []int) int {
	sum := -2
	for _, n := range widths {
		if n > 0 {
			sum += n + 2
		}
	}
	return sum
}

func (t table) cell(w io.Writer, text string, column, width int, header bool) string {
	n := utf8.RuneCountInString(text)
	word, _, _ := strings.Cut(text, ":") // "lost: no longer in the machine"
	if n > width {
		runes := []rune(text)
		text, n = string(runes[:width-1])+"…", width
	}
	padded := text + strings.Repeat(" ", width-n)
	if colour := stateColours[word]; !header && column == t.state && colour != "" && colours(w) {
		return "\x1b[" + colour + "m" + padded + "\x1b[0m"
	}
	return padded
}

// outputFlags gives a verb that lists or shows -o and --json, and --stale.
func (a *app) outputFlags(cmd *cobra.Command) {
	a.formFlags(cmd)
	cmd.Flags().BoolVar(&a.global.stale, "stale", false, "answer from any server's own state, without asking the leader")
}

// formFlags gives a verb -o and --json: the form of its answer, and of its errors.
func (a *app) formFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&a.global.output, "output", "o", os.Getenv("MUSTER_OUTPUT"), "table, json, jsonl or name")
	cmd.Flags().BoolVar(&a.global.json, "json", false, "the same as -o json")
}

// A listing is one answer in all its forms.
type listing struct {
	items any          // the muster.v1 items: a slice of structs
	names []string     // for -o name
	table func() table // for people
	text  func() error // for people, instead of a table
}

// outputForm is the form that was asked for.
func (a *app) outputForm() string {
	switch {
	case a.global.json:
		return "json"
	case a.global.output == "":
		return "table"
	}
	return a.global.output
}

func (a *app) print(l listing) error {
	switch format := a.outputForm(); format {
	case "table":
		if l.text != nil {
			return l.text()
		}
		return l.table().print(a.io.out)
	case "json":
		encoder := json.NewEncoder(a.io.out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(struct {
			Schema string `json:"schema"`
			Items  any    `json:"items"`
		}{"muster.v1", l.items})
	case "jsonl":
		return a.printLines(l.items)
	case "name":
		for _, name := range l.names {
			if _, err := fmt.Fprintln(a.io.out, name); err != nil {
				return err
			}
		}
		return nil
	case "hcl", "dot":
		return muster.Errorf(muster.KindUsage, "-o %s is not supported yet", format)
	default:
		return muster.Errorf(muster.KindUsage, "there is no output %q", format).WithHint("One of: table, json, jsonl, name")
	}
}

func (a *app) printLines(items any) error {
	each, err := jsonLines(items)
	if err != nil {
		return err
	}
	for _, item := range each {
		if _, err := fmt.Fprintln(a.io.out, string(item)); err != nil {
			return err
		}
	}
	return nil
}

// when prints a moment: on a terminal relative, with the day when it isn't today; elsewhere RFC 3339.
func (a *app) when(ms int64, now time.Time) string {
	if ms == 0 {
		return "-"
	}
	t := time.UnixMilli(ms)
	if width(a.io.out) == 0 {
		return t.UTC().Format(time.RFC3339)
	}
	local, today := t.Local(), now.Local()
	if age := now.Sub(t); age >= 0 && age < time.Hour {
		return short(age) + " ago"
	}
	if local.YearDay() == today.YearDay() && local.Year() == today.Year() {
		return local.Format("15:04")
	}
	return local.Format("Jan 2 15:04")
}

// count says how many there are: "1 job", "3 jobs".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// short prints a duration in at most two units: "12s", "3m20s", "4h10m", "2d3h".
func short(d time.Duration) string {
	switch d = d.Round(time.Second); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
}
