// Command manual writes a manual page for each command of the programs, and the programs' completions, from the trees of
// commands that also make docs/reference.
//
//	manual --version V --epoch SECONDS --out DIR
//
// What it writes for a program is in DIR/PROGRAM as it will be in /usr/share. The same flags give the same bytes.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	agent "github.com/ingot-metal/ingot/agent/cmdline"
	"github.com/ingot-metal/ingot/cli"
	controller "github.com/ingot-metal/ingot/controller/cmdline"
	image "github.com/ingot-metal/ingot/imagebuild/cmdline"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "manual:", err)
		os.Exit(1)
	}
}

// program is a tree of commands, and the section of the manual that its pages belong to.
type program struct {
	root    *cobra.Command
	section string
}

// programs returns new trees. The pages of ingot have a section of their own within the first: the pages of the command
// `ingot image` and of the program ingot-image have one name.
func programs() []program {
	return []program{
		{cli.Commands(), "1ingot"}, {agent.Commands(), "1"}, {controller.Commands(), "1"}, {image.Commands(), "1"},
	}
}

func run(args []string) error {
	f := flag.NewFlagSet("manual", flag.ContinueOnError)
	version := f.String("version", "", "version of the programs")
	epoch := f.Int64("epoch", 0, "the date of every page, in seconds since 1970")
	out := f.String("out", "", "directory to write to")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *out == "" || f.NArg() != 0 {
		return errors.New("--out is required, and no other arguments")
	}
	date := time.Unix(*epoch, 0).UTC()
	for _, p := range programs() {
		files, err := completions(p.root)
		if err != nil {
			return err
		}
		for name, page := range pages(p, "Ingot "+*version, date) {
			files["man/man1/"+name] = page
		}
		for name, content := range files {
			path := filepath.Join(*out, p.root.Name(), name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o644)); err != nil {
				return err
			}
		}
	}
	return nil
}

// completions returns the files that shells load, where they look for them. They are what the program's own command
// `completion` prints.
func completions(root *cobra.Command) (map[string][]byte, error) {
	var bash, zsh, fish bytes.Buffer
	err := errors.Join(
		root.GenBashCompletionV2(&bash, true),
		root.GenZshCompletion(&zsh),
		root.GenFishCompletion(&fish, true),
	)
	return map[string][]byte{
		"bash-completion/completions/" + root.Name():         bash.Bytes(),
		"zsh/vendor-completions/_" + root.Name():             zsh.Bytes(),
		"fish/vendor_completions.d/" + root.Name() + ".fish": fish.Bytes(),
	}, err
}

// pages returns the pages of a program by the names of their files.
func pages(p program, source string, date time.Time) map[string][]byte {
	p.root.DisableAutoGenTag = true // it has the date, which the head of a page has too
	all := commands(p.root)
	escapeFlags(all)
	out := map[string][]byte{}
	for _, c := range all {
		escape(c)
		var b bytes.Buffer
		h := &doc.GenManHeader{Section: p.section, Date: &date, Source: source, Manual: "Ingot"}
		if err := doc.GenMan(c, h, &b); err != nil {
			panic(err) // it fails without a date and where the buffer does
		}
		out[strings.ReplaceAll(c.CommandPath(), " ", "-")+"."+p.section] = b.Bytes()
	}
	return out
}

// commands returns the commands of a tree that help lists, its topics too.
func commands(c *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{c}
	for _, child := range c.Commands() {
		if child.IsAvailableCommand() || child.IsAdditionalHelpTopicCommand() {
			out = append(out, commands(child)...)
		}
	}
	return out
}

// escape makes Markdown of the texts of a command, which are plain: doc reads Markdown.
func escape(c *cobra.Command) {
	c.Short = escapeLine(c.Short)
	if name, rest, ok := strings.Cut(c.Use, " "); ok {
		c.Use = name + " " + escapeLine(rest)
	}
	var b strings.Builder
	code := false
	for line := range strings.SplitSeq(strings.Trim(c.Long, "\n"), "\n") {
		// What help indents, such as a command or a table, keeps its lines.
		if indented := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t"); line != "" && indented != code {
			code = indented
			b.WriteString("\n```\n")
		}
		if !code {
			line = escapeLine(line)
		}
		b.WriteString(line + "\n")
	}
	if code {
		b.WriteString("```\n")
	}
	if c.Long != "" {
		c.Long = b.String()
	}
}

// escapeFlags does so with the flags of commands, of which several share some.
func escapeFlags(all []*cobra.Command) {
	done := map[*pflag.Flag]bool{}
	for _, c := range all {
		c.InitDefaultHelpFlag()
		for _, set := range []*pflag.FlagSet{c.LocalFlags(), c.PersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) {
				if !done[f] {
					done[f] = true
					f.Usage = escapeLine(f.Usage)
				}
			})
		}
	}
}

var (
	markup    = regexp.MustCompile("[\\\\`*_{}\\[\\]<>|&~]")
	lineStart = regexp.MustCompile(`^([0-9]+)?([-+#:.!=])`)
)

func escapeLine(line string) string {
	return lineStart.ReplaceAllString(markup.ReplaceAllString(line, `\$0`), `$1\$2`)
}
