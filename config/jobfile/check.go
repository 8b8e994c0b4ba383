package jobfile

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config/schema"
)

// check looks at what no single argument shows. Each mistake is said once, so it says nothing of what the table refused.
func check(d *schema.Decoder, doc *document, i int) {
	j := &doc.Jobs[i]
	path := "jobs[" + strconv.Itoa(i) + "]"
	name(d, path+".name", "job", j.Spec.Name)
	for k := range i {
		if doc.Jobs[k].Spec.Name == j.Spec.Name {
			first := d.Place("jobs[" + strconv.Itoa(k) + "]")
			d.Error(path+".name", "Two jobs of one name", "There is a job %q on line %d already.", j.Spec.Name, first.Start.Line)
			break
		}
	}
	if len(j.Groups) == 0 {
		tasks(d, path, &j.Group)
		return
	}
	mixed(d, path)
	for g := range j.Groups {
		at := path + ".groups[" + strconv.Itoa(g) + "]"
		name(d, at+".name", "group", j.Groups[g].Name)
		for k := range g {
			if j.Groups[k].Name == j.Groups[g].Name {
				d.Error(at+".name", "Two groups of one name", "The job has a group %q already.", j.Groups[g].Name)
				break
			}
		}
		tasks(d, at, &j.Groups[g])
	}
}

const nameRule = "A name is at most 64 small letters, digits and dashes; it begins with a letter and does not end with a dash"

func name(d *schema.Decoder, path, what, s string) {
	if _, said := d.Places[path]; !said || muster.ValidName(s) {
		return
	}
	say := nameRule + "."
	if near := asName(s); near != "" {
		say += fmt.Sprintf(" Say %q.", near)
	}
	d.Error(path, "Wrong name", "%q can't be the name of a %s. %s", s, what, say)
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// asName is the valid name most like s; "" when nothing is left.
func asName(s string) string {
	s = strings.Trim(notInName.ReplaceAllString(strings.ToLower(s), "-"), "-")
	if s != "" && s[0] >= '0' && s[0] <= '9' {
		s = "job-" + s
	}
	return strings.TrimRight(s[:min(64, len(s))], "-")
}

func tasks(d *schema.Decoder, path string, g *group) {
	if len(g.Tasks) == 0 && !d.Diags.HasErrors() { // a mistyped task is one mistake
		d.Error(path, "Nothing to run", "There is no task in it. A task:\n\n%s", smallestTask)
	}
	for t := range g.Tasks {
		at := path + ".tasks[" + strconv.Itoa(t) + "]"
		name(d, at+".name", "task", g.Tasks[t].Name)
		if t > 0 {
			d.Error(at, "Not supported yet", "A second task is not supported yet: a group has one, its main task.")
			continue
		}
		program(d, at, &g.Tasks[t])
	}
}

// program checks what a task runs.
func program(d *schema.Decoder, path string, t *muster.Task) {
	said := func(attr string) bool { _, ok := d.Places[path+"."+attr]; return ok }
	switch {
	case said("script") && said("command"):
		d.Error(path+".command", "Script and command", "A task runs a script, or one command with args: keep one of them.")
	case said("script") && said("args"):
		d.Error(path+".args", "Script with args", "A script takes no args: write them into its text.")
	case said("command") && strings.ContainsAny(strings.TrimSpace(t.Command), " \t\n"):
		d.Error(path+".command", "Blank in command", "command is one program; use args or script:\n\n%s", splitCommand(t.Command))
	case !said("script") && !said("command"):
		if said("args") {
			d.Error(path+".args", "Args without command", "args are the arguments of command = \"…\", which is not there.")
			return
		}
		d.Error(path, "Nothing to run", "Say what the task runs: command = \"…\" with args = [\"…\"], or script = \"…\".")
	}
	launcher(d, path, t)
}

// splitCommand shows a command line as command and args, or as a script where a shell would be needed.
func splitCommand(line string) string {
	words := strings.Fields(line)
	if strings.ContainsAny(line, "\"'$`|&;<>*?()\\\n") {
		return "  script = <<-EOT\n    " + strings.TrimSpace(line) + "\n  EOT"
	}
	for i := range words {
		words[i] = strconv.Quote(words[i])
	}
	return "  command = " + words[0] + "\n  args    = [" + strings.Join(words[1:], ", ") + "]"
}

var (
	torchrun  = regexp.MustCompile(`(^|[\s/])torchrun\s|torch\.distributed\.(run|launch)\b`)
	placeFlag = regexp.MustCompile(`--(nnodes|node[_-]rank|master[_-]addr|master[_-]port)\b`)
)

// launcher refuses torchrun's flags for what muster sets itself.
func launcher(d *schema.Decoder, path string, t *muster.Task) {
	const format = "%s: muster sets it (PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT are in the environment): leave it out."
	line := t.Command + " " + strings.Join(t.Args, " ")
	if torchrun.MatchString(line + " ") {
		for i, arg := range t.Args {
			if flag := placeFlag.FindString(arg); flag != "" && strings.HasPrefix(arg, flag) {
				d.Error(path+".args["+strconv.Itoa(i)+"]", "Flag of torchrun that muster sets", format, flag)
				return
			}
		}
	}
	logical := "" // a line with those that a backslash joins to it
	for n, line := range strings.Split(t.Script, "\n") {
		logical += line
		if flag := placeFlag.FindString(line); flag != "" && torchrun.MatchString(logical) && !strings.HasPrefix(strings.TrimSpace(logical), "#") {
			d.ErrorInText(path+".script", n, "Flag of torchrun that muster sets", format, flag)
			return
		}
		if !strings.HasSuffix(line, "\\") {
			logical = ""
		}
	}
}

// mixed refuses what belongs to a group in a job that has group blocks.
func mixed(d *schema.Decoder, path string) {
	refuse := func(place, word string) {
		if _, said := d.Places[path+"."+place]; said {
			d.Error(path+"."+place, "Job with groups", "%q stands in the job beside group blocks: a job is one group, or has them. Move it into its group.", word)
		}
	}
	for i := range groupTable.Attrs {
		if a := &groupTable.Attrs[i]; !a.Later {
			refuse(a.Name, a.Name)
		}
	}
	for i := range groupTable.Blocks {
		b := &groupTable.Blocks[i]
		refuse(b.PathName(0), b.Name)
	}
}
