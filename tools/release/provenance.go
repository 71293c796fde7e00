package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

const repository = "https://github.com/ingot-metal/ingot"

// statement is an in-toto Statement v1 with a predicate of SLSA Provenance v1, with those fields alone whose values are
// known: https://slsa.dev/spec/v1.0/provenance. It has no times, so that the same release has the same bytes.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     predicate  `json:"predicate"`
}

type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

type predicate struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		ResolvedDependencies []resource        `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

var (
	sumLine = regexp.MustCompile(`^([0-9a-f]{64}) [ *](\S+)$`)
	// summedURI is a dependency with its SHA-256.
	summedURI = regexp.MustCompile(`^(.*)=([0-9a-f]{64})$`)
	sha1Hex   = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// provenance prints the statement of how the files that sha256sum has listed were made.
func provenance(args []string, out io.Writer) error {
	f := flag.NewFlagSet("provenance", flag.ContinueOnError)
	tag := f.String("tag", "", "tag that was built")
	commit := f.String("commit", "", "its commit")
	goVersion := f.String("go", "", "version of Go")
	builder := f.String("builder", "", "URI of who builds")
	var others list
	f.Var(&others, "dependency", "URI of something else that went in, with its SHA-256 behind a =")
	if err := f.Parse(args); err != nil {
		return err
	}
	if err := required(f, "tag", "commit", "go", "builder"); err != nil {
		return err
	}
	if f.NArg() != 1 || !sha1Hex.MatchString(*commit) {
		return errors.New("provenance reads one file of sums, and --commit has 40 digits")
	}
	s := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	var err error
	if s.Subject, err = subjects(f.Arg(0)); err != nil {
		return err
	}
	d := &s.Predicate.BuildDefinition
	d.BuildType = repository + "/make-release/v1"
	d.ExternalParameters = map[string]string{"repository": repository, "tag": *tag}
	d.ResolvedDependencies = []resource{
		{URI: "git+" + repository + "@refs/tags/" + *tag, Digest: map[string]string{"gitCommit": *commit}},
		{URI: "pkg:generic/go@" + strings.TrimPrefix(*goVersion, "go")},
	}
	for _, other := range others {
		r := resource{URI: other}
		if m := summedURI.FindStringSubmatch(other); m != nil { // a URI may have a = of its own
			r = resource{URI: m[1], Digest: map[string]string{"sha256": m[2]}}
		}
		d.ResolvedDependencies = append(d.ResolvedDependencies, r)
	}
	s.Predicate.RunDetails.Builder.ID = *builder
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(s)
}

func subjects(path string) (out []resource, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		m := sumLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			return nil, fmt.Errorf("%s: %q is no line of sha256sum", path, line)
		}
		out = append(out, resource{Name: m[2], Digest: map[string]string{"sha256": m[1]}})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s lists no files", path)
	}
	return out, nil
}
