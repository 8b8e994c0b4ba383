package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config/jobfile"
	"github.com/musterhpc/muster/config/schema"
)

// varFlags are --var and --var-file.
type varFlags struct{ vars, files []string }

func (v *varFlags) declare(flags *pflag.FlagSet) {
	flags.StringArrayVar(&v.vars, "var", nil, "NAME=VALUE of a variable of the file; MUSTER_VAR_NAME does the same")
	flags.StringArrayVar(&v.files, "var-file", nil, "a file of NAME = VALUE lines")
}

// read puts what the flags say into the options that a file is parsed with.
func (v *varFlags) read(options *jobfile.Options) error {
	for _, pair := range v.vars {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return muster.Errorf(muster.KindUsage, "--var %s: say NAME=VALUE", pair)
		}
		options.Vars = append(options.Vars, jobfile.Var{Name: name, Value: value, From: "--var"})
	}
	for _, path := range v.files {
		source, err := readText(path, schema.MaxBytes)
		if err != nil {
			return muster.Errorf(muster.KindNotFound, "--var-file: %v", err)
		}
		options.VarFiles = append(options.VarFiles, jobfile.VarFile{Name: path, Source: source})
	}
	return nil
}

// here gives a job file what belongs to this machine: the folder that its relative paths are relative to, the environment,
// the files that it reads.
func here(options *jobfile.Options, path string) error {
	dir, err := fileDir(path)
	if err != nil {
		return err
	}
	options.Dir, options.LookupEnv = dir, os.LookupEnv
	options.ReadFile = func(name string) ([]byte, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return readText(name, muster.MaxSpecSize)
	}
	return nil
}

// readText reads a file: of one that is larger than limit one byte more, so that who parses it can say so.
func readText(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, limit+1))
}
