package sim

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
)

// sheet is a CSV file with a header, read row by row by the names of its columns.
type sheet struct {
	path    string
	columns map[string]int
	rows    [][]string
	at      int
	err     error // the first value that could not be read
}

// openSheet reads a file that must have the given columns.
func openSheet(path string, required ...string) (*sheet, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.FieldsPerRecord = -1
	head, err := r.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s is empty: its first line must name the columns %s", path, strings.Join(required, ","))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s := &sheet{path: path, columns: map[string]int{}, at: -1}
	for i, name := range head {
		s.columns[strings.TrimSpace(name)] = i
	}
	for _, name := range required {
		if _, ok := s.columns[name]; !ok {
			return nil, fmt.Errorf("%s:1: no column %q: it must have %s", path, name, strings.Join(required, ","))
		}
	}
	if s.rows, err = r.ReadAll(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func (s *sheet) next() bool {
	s.at++
	return s.err == nil && s.at < len(s.rows)
}

func (s *sheet) has(column string) bool { _, ok := s.columns[column]; return ok }

// text gives a field; "nan" is how some traces write nothing.
func (s *sheet) text(column string) string {
	i, ok := s.columns[column]
	if !ok || i >= len(s.rows[s.at]) {
		return ""
	}
	if v := strings.TrimSpace(s.rows[s.at][i]); v != "nan" {
		return v
	}
	return ""
}

// number gives a field that is a number of at least 0; an empty one is 0.
func (s *sheet) number(column string) float64 {
	text := s.text(column)
	if text == "" {
		return 0
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || v < 0 || v > 1e15 {
		s.fail("%s: %q is not a number from 0 on", column, text)
		return 0
	}
	return v
}

func (s *sheet) integer(column string) int64 { return int64(math.Round(s.number(column))) }

// fail remembers what is wrong with the row at hand; the first mistake is the one that is told.
func (s *sheet) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("%s:%d: %s", s.path, s.at+2, fmt.Sprintf(format, args...))
	}
}
