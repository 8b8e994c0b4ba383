package worker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/musterhpc/muster"
)

// maxEnvFile bounds a file of variables: the kernel takes not much more for a whole environment.
const maxEnvFile = 1 << 20

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// readEnvFiles reads the variables of files, in their order. What they say is told to nobody but the task: no error shows it.
func readEnvFiles(paths []string) ([]muster.EnvVar, error) {
	var all []muster.EnvVar
	for _, path := range paths {
		text, err := readEnvFile(path)
		if err != nil {
			return nil, fmt.Errorf("env_from_file: %w", err)
		}
		vars, err := parseEnvFile(text)
		if err != nil {
			return nil, fmt.Errorf("env_from_file %s: %w", path, err)
		}
		all = append(all, vars...)
	}
	return all, nil
}

func readEnvFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no file", path) // a pipe would be waited for
	}
	text, err := io.ReadAll(io.LimitReader(file, maxEnvFile+1))
	if err == nil && len(text) > maxEnvFile {
		err = fmt.Errorf("%s is larger than %s", path, muster.Bytes(maxEnvFile))
	}
	return string(text), err
}

// parseEnvFile reads lines NAME=VALUE, with "export " before them or without. '…' is taken as it stands; in "…" \n, \t, \" and
// \\ are what they are in the shell's $'…'. Blank lines and those that begin with # are skipped.
func parseEnvFile(text string) ([]muster.EnvVar, error) {
	var vars []muster.EnvVar
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		name = strings.TrimSpace(name)
		if !ok || !envName.MatchString(name) {
			return nil, fmt.Errorf("line %d is not NAME=VALUE", n)
		}
		value, err := unquote(strings.TrimSpace(value))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		vars = append(vars, muster.EnvVar{Name: name, Value: value})
	}
	return vars, nil
}

var escapes = strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\"`, `"`, `\\`, `\`, `\$`, `$`)

func unquote(value string) (string, error) {
	if strings.IndexByte(value, 0) >= 0 {
		return "", errors.New("the value holds a NUL byte")
	}
	if value == "" || value[0] != '"' && value[0] != '\'' {
		return value, nil
	}
	if len(value) < 2 || value[len(value)-1] != value[0] {
		return "", errors.New("the quote has no end on its line")
	}
	inner := value[1 : len(value)-1]
	if value[0] == '\'' {
		return inner, nil
	}
	return escapes.Replace(inner), nil
}
