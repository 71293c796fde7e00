// Command benchpage makes the performance page and its plots out of the results that benchmarks have stored.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ingot-metal/ingot/lab/results"
)

func main() {
	path := flag.String("results", results.Path, "file of the results; the page and its plots are written beside it")
	flag.Parse()
	if err := run(*path); err != nil {
		fmt.Fprintln(os.Stderr, "benchpage:", err)
		os.Exit(1)
	}
}

func run(path string) error {
	runs, err := results.Load(path)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	old, err := filepath.Glob(filepath.Join(dir, "plots", "*.svg"))
	if err != nil {
		return err
	}
	for _, plot := range old {
		if err := os.Remove(plot); err != nil {
			return fmt.Errorf("remove an old plot: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "plots"), 0o755); err != nil {
		return fmt.Errorf("make the folder of plots: %w", err)
	}
	for name, b := range results.Page(runs) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return fmt.Errorf("write the performance page: %w", err)
		}
	}
	return nil
}
