package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// entry is one finished run in the journal.
type entry struct {
	Seed uint64 `json:"seed"`
	// Elapsed is how long the work has taken up to then, with that of earlier processes.
	Elapsed time.Duration `json:"elapsed_ns"`
	Tally   *tally        `json:"tally"`
}

// journal has one line for each finished run, so that work that was cut short goes on where it was.
type journal struct {
	file *os.File
	done map[uint64]bool
	// elapsed is how long earlier processes took.
	elapsed time.Duration
}

const journalName = "runs.jsonl"

// openJournal begins a new journal below dir, or goes on with the existing one and calls take with its entries.
func openJournal(dir string, resume bool, take func(entry)) (*journal, error) {
	j := &journal{done: map[uint64]bool{}}
	flags := os.O_APPEND | os.O_CREATE | os.O_WRONLY
	if !resume {
		flags |= os.O_TRUNC
	} else if err := j.read(filepath.Join(dir, journalName), take); err != nil {
		return nil, err
	}
	var err error
	if j.file, err = os.OpenFile(filepath.Join(dir, journalName), flags, 0o644); err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	return j, nil
}

func (j *journal) read(path string, take func(entry)) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	defer f.Close()
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, 4<<20)
	for scan.Scan() {
		e := entry{}
		// A line that was cut short is a run that is done again.
		if json.Unmarshal(scan.Bytes(), &e) != nil || e.Tally == nil || j.done[e.Seed] {
			continue
		}
		j.done[e.Seed] = true
		j.elapsed = max(j.elapsed, e.Elapsed)
		take(e)
	}
	return scan.Err()
}

// add writes a line. The newline in front ends a line that a killed process left half.
func (j *journal) add(e entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(j.file, "\n%s", b); err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	return nil
}

func (j *journal) close() error { return j.file.Close() }
