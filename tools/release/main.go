// Command release makes the parts of a release that are no programs and no Debian packages.
//
//	release sbom --name N --version V --purl P --epoch SECONDS --out FILE [--component PURL]… [NAME=]BINARY…
//	release rpm --name N --version V --arch A --summary S --description D --epoch SECONDS [--scripts DIR] --out FILE
//	  [--requires PACKAGE]… [--recommends PACKAGE]… TREE
//	release chart --version V --epoch SECONDS --out DIR CHART
//	release notes --version V CHANGELOG.md
//	release provenance --tag T --commit SHA1 --go V --builder URI [--dependency URI[=SHA256]]… SHA256SUMS
//	release key --out FILE
//	release sign --key FILE --comment TEXT [--public FILE] FILE
//
// The same files and flags give the same bytes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// verbs are the subcommands by name. out gets the result of those that write no file.
var verbs = map[string]func(args []string, out io.Writer) error{
	"sbom": sbom, "rpm": rpm, "chart": chart, "notes": notes, "provenance": provenance, "key": key, "sign": sign,
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) == 0 || verbs[args[0]] == nil {
		return errors.New("its commands are in the comment of main.go")
	}
	return verbs[args[0]](args[1:], out)
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return fmt.Sprint(*l) }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

// required returns an error if a flag is empty.
func required(f *flag.FlagSet, names ...string) error {
	for _, name := range names {
		if f.Lookup(name).Value.String() == "" {
			return fmt.Errorf("--%s is required", name)
		}
	}
	return nil
}
