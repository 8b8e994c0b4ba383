package main

import (
	"encoding/gob"
	"fmt"
	"os"
	"path/filepath"
)

// checkpoint is what an attempt leaves to the next.
type checkpoint struct {
	Step       int
	Parameters []float64
}

// save writes c beside what was saved before and removes that: whoever looks finds one or the other, whole.
func save(dir string, c checkpoint) error {
	name := filepath.Join(dir, fmt.Sprintf("step-%08d", c.Step))
	file, err := os.CreateTemp(dir, ".saving-")
	if err != nil {
		return err
	}
	defer file.Close()
	if err := gob.NewEncoder(file).Encode(c); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), name); err != nil {
		return err
	}
	older, err := filepath.Glob(filepath.Join(dir, "step-*"))
	for _, path := range older {
		if path != name {
			err = os.Remove(path)
		}
	}
	return err
}

// newest reads what was saved last, or gives first when nothing was.
func newest(dir string, first checkpoint) (checkpoint, error) {
	saved, err := filepath.Glob(filepath.Join(dir, "step-*")) // in the order of their names
	if err != nil || len(saved) == 0 {
		return first, err
	}
	path := saved[len(saved)-1]
	file, err := os.Open(path)
	if err != nil {
		return first, err
	}
	defer file.Close()
	var c checkpoint
	if err := gob.NewDecoder(file).Decode(&c); err != nil || len(c.Parameters) != len(first.Parameters) {
		return first, fmt.Errorf("%s is no checkpoint of this model: %w", path, err)
	}
	return c, nil
}
