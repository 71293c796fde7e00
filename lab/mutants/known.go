package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// explained is why a mutant lives.
type explained struct {
	key, why string
	// equivalent is a change without an effect.
	equivalent bool
	line       int
}

// readExplained reads a file of explanations: a line with a mutant's key, then an indented one with "equivalent: " or
// "accepted: " and the reason. Empty lines and lines that start with "//" are ignored.
func readExplained(path string) (map[string]explained, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	out := map[string]explained{}
	var keys []string
	scanner := bufio.NewScanner(file)
	for line := 1; scanner.Scan(); line++ {
		text := scanner.Text()
		indented := strings.HasPrefix(text, "\t")
		text = strings.TrimSpace(text)
		switch {
		case text == "" || strings.HasPrefix(text, "//"):
		case !indented:
			keys = append(keys, text)
		default:
			kind, why, _ := strings.Cut(text, ": ")
			if kind != "equivalent" && kind != "accepted" || why == "" || len(keys) == 0 {
				return nil, fmt.Errorf(`%s:%d: want "equivalent: " or "accepted: " and why, below a mutant`, path, line)
			}
			for _, key := range keys {
				if _, twice := out[key]; twice {
					return nil, fmt.Errorf("%s:%d: explained twice: %s", path, line, key)
				}
				out[key] = explained{key: key, why: why, equivalent: kind == "equivalent", line: line}
			}
			keys = nil
		}
	}
	if len(keys) > 0 {
		return nil, fmt.Errorf("%s: no reason for %s", path, keys[0])
	}
	return out, scanner.Err()
}
