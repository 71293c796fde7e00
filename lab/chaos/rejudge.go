package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ingot-metal/ingot/lab/chaos/check"
)

// rejudge judges a history that was kept, or all below a directory, with the check as it is now.
func rejudge(path string, w io.Writer) error {
	files := []string{path}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		for _, pattern := range []string{"history.jsonl", "*/history.jsonl"} {
			more, err := filepath.Glob(filepath.Join(path, pattern))
			if err != nil {
				return err
			}
			files = append(files, more...)
		}
		files = files[1:]
	}
	if len(files) == 0 {
		return fmt.Errorf("there is no history below %s", path)
	}
	bad := 0
	for _, file := range files {
		found, err := rejudgeFile(file, w)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if found > 0 {
			bad++
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d histories break a promise", bad, len(files))
	}
	return nil
}

func rejudgeFile(path string, w io.Writer) (found int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h, err := check.Read(f)
	if err != nil {
		return 0, err
	}
	violations := check.Judge(h)
	for _, v := range violations {
		fmt.Fprintln(w, v)
	}
	fmt.Fprintf(w, "seed %d: %d violations\n", h.Header.Seed, len(violations))
	return len(violations), nil
}
