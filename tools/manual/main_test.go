package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// TestPagesHaveEveryText holds that the pages have each word of the texts, usages and flags of the commands, in order.
func TestPagesHaveEveryText(t *testing.T) {
	plain := strings.NewReplacer(`\fB`, "", `\fI`, "", `\fP`, "", `\fR`, "", `\-`, "-", `\&`, "", `\e`, `\`, `\\`, `\`)
	made, asked := programs(), programs()
	for i, p := range made {
		all := pages(p, "Ingot 1.2.3", time.Unix(1700000000, 0).UTC())
		for _, c := range commands(asked[i].root) {
			name := strings.ReplaceAll(c.CommandPath(), " ", "-") + "." + p.section
			var text strings.Builder
			for line := range strings.Lines(string(all[name])) {
				if !strings.HasPrefix(line, ".") {
					text.WriteString(plain.Replace(line))
				}
			}
			words := " " + strings.Join(strings.Fields(text.String()), " ") + " "
			hold := func(want string) {
				t.Helper()
				if want = strings.Join(strings.Fields(want), " "); !strings.Contains(words, " "+want+" ") && want != "" {
					t.Errorf("%s lacks %q:\n%s", name, want, all[name])
				}
			}
			hold(c.Short)
			hold(c.Long)
			hold(c.Example)
			hold(c.UseLine())
			c.Flags().VisitAll(func(f *pflag.Flag) {
				if !f.Hidden {
					hold(f.Usage)
				}
			})
			delete(all, name)
		}
		if len(all) != 0 {
			t.Errorf("%s has pages of no command: %d", p.root.Name(), len(all))
		}
	}
}

// TestCompletions are those that the programs print.
func TestCompletions(t *testing.T) {
	for i, p := range programs() {
		files, err := completions(p.root)
		if err != nil || len(files) != 3 {
			t.Fatalf("%d files, %v", len(files), err)
		}
		for _, shell := range []string{"bash", "zsh", "fish"} {
			var printed bytes.Buffer
			root := programs()[i].root
			root.PersistentPreRunE = nil // it reads the caller's configuration
			root.SetOut(&printed)
			root.SetArgs([]string{"completion", shell})
			if err := root.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			made := slices.Collect(maps.Values(files))
			if !slices.ContainsFunc(made, func(b []byte) bool { return bytes.Equal(b, printed.Bytes()) }) {
				t.Errorf("%s completion %s prints another text", p.root.Name(), shell)
			}
		}
	}
}

// TestTheSameFlagsGiveTheSameBytes, wherever and whenever.
func TestTheSameFlagsGiveTheSameBytes(t *testing.T) {
	zone := time.Local
	t.Cleanup(func() { time.Local = zone })
	var first map[string][]byte
	for _, offset := range []int{-11, 13} {
		time.Local = time.FixedZone("there", offset*3600)
		dir := t.TempDir()
		// The last second of a month in UTC.
		if err := run([]string{"--version", "1.2.3", "--epoch", "1767225599", "--out", dir}); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "*/man/man1/*.1*"))
		if err != nil || len(files) < 200 {
			t.Fatalf("%d pages, %v", len(files), err)
		}
		names, all := map[string]string{}, map[string][]byte{}
		for _, path := range files {
			if other := names[filepath.Base(path)]; other != "" {
				t.Errorf("%s and %s have one name", path, other)
			}
			names[filepath.Base(path)] = path
			if all[filepath.Base(path)], err = os.ReadFile(path); err != nil {
				t.Fatal(err)
			}
		}
		if first == nil {
			first = all
		}
		for name, page := range all {
			if !bytes.Equal(page, first[name]) || !bytes.Contains(page, []byte(`"Dec 2025" "Ingot 1.2.3"`)) {
				t.Errorf("%s differs, or has another head", name)
			}
		}
	}
}
