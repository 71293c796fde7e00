package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// notes prints the section of the change log of a version. A version before a release, such as 0.1.0-rc.1, has the
// section of that release; a release refuses one that is marked as unreleased.
func notes(args []string, out io.Writer) error {
	f := flag.NewFlagSet("notes", flag.ContinueOnError)
	version := f.String("version", "", "version of the release")
	if err := f.Parse(args); err != nil {
		return err
	}
	if err := required(f, "version"); err != nil {
		return err
	}
	if f.NArg() != 1 {
		return errors.New("notes reads one change log")
	}
	text, err := os.ReadFile(f.Arg(0))
	if err != nil {
		return err
	}
	section, err := sectionOf(string(text), *version)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "# Ingot %s\n\n%s\n", *version, section)
	return err
}

func sectionOf(text, version string) (string, error) {
	base, _, before := strings.Cut(version, "-")
	for part := range strings.SplitSeq("\n"+text, "\n## ") {
		heading, body, _ := strings.Cut(part, "\n")
		name, date, _ := strings.Cut(heading, " ")
		if name != base && name != version {
			continue
		}
		if strings.Contains(date, "unreleased") && !before {
			return "", fmt.Errorf("the change log marks %s as unreleased", version)
		}
		return strings.TrimSpace(body), nil
	}
	return "", fmt.Errorf("the change log has no section %q", "## "+base)
}
