//go:build recipes

package recipes

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// edit is a part of a step: text put after the first line that contains a string, or a new file.
type edit struct {
	step              int
	path, after, text string
}

// TestRecipes executes each recipe of CONTRIBUTING.md in a copy of the tree.
func TestRecipes(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := recipes(t, string(page))
	for title := range all {
		if examples[title] == nil {
			t.Errorf("%s has no example", title)
		}
	}
	for title, edits := range examples {
		t.Run(title, func(t *testing.T) {
			steps := all[title]
			if len(steps) == 0 {
				t.Fatal("the page has no such recipe")
			}
			holdsEdits(t, steps, edits)
			if out, err := follow(t, steps, edits, 0); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if !steps[len(steps)-1].namesWhatIsMissing() {
				return
			}
			for _, s := range steps {
				if s.number == 0 || s.optional {
					continue
				}
				if out, err := follow(t, steps, edits, s.number); err == nil {
					t.Errorf("nothing fails without step %d: %s\n%s", s.number, s.text, out)
				}
			}
		})
	}
}

// byHand reports whether a step is a command of the program, for a user.
func (s step) byHand() bool { return strings.Contains(s.text, "`ingot ") }

// holdsEdits holds that each step has an edit or a command, and that it names the files which its edits change.
func holdsEdits(t *testing.T, steps []step, edits []edit) {
	t.Helper()
	for _, s := range steps {
		done := len(s.commands()) > 0 || s.byHand()
		for _, e := range edits {
			if e.step != s.number {
				continue
			}
			done = true
			if s.hasFiles() && !s.names(e.path) {
				t.Errorf("step %d does not name %s: %s", s.number, e.path, s.text)
			}
		}
		if !done && s.number > 0 {
			t.Errorf("the example has nothing for step %d: %s", s.number, s.text)
		}
	}
}

// follow takes the steps but one in a new copy of the tree, and returns what the command printed that failed.
func follow(t *testing.T, steps []step, edits []edit, without int) (string, error) {
	t.Helper()
	dir := tree(t)
	defer func() { _ = os.RemoveAll(dir) }()
	for _, s := range steps {
		if s.number == without && without != 0 {
			continue
		}
		for _, e := range edits {
			if e.step == s.number && s.number != 0 {
				apply(t, dir, e)
			}
		}
		for _, command := range s.commands() {
			t.Logf("step %d: %s", s.number, command)
			if out, err := run(t.Context(), dir, command); err != nil {
				return out, err
			}
		}
	}
	return "", nil
}

func run(ctx context.Context, dir, command string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false -vet=off -tags=grpcnotrace")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func apply(t *testing.T, dir string, e edit) {
	t.Helper()
	path := filepath.Join(dir, e.path)
	if e.after == "" {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(e.text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(old), "\n")
	at := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, e.after) })
	if at < 0 {
		t.Fatalf("%s has no line with %q", e.path, e.after)
	}
	text := strings.Join(slices.Insert(lines, at+1, e.text), "")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tree copies the files that git knows or would add, and the generators, into a new directory.
func tree(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "recipe-")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	names, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Split(strings.Trim(string(names), "\x00"), "\x00")
	for _, tool := range []string{"buf", "protoc-gen-go", "protoc-gen-go-grpc", "protoc-gen-grpc-gateway",
		"protoc-gen-openapiv2", "sqlc"} {
		files = append(files, "bin/tools/"+tool) // copied last, and so newer than what they are made from
	}
	for _, name := range files {
		copyFile(t, filepath.Join(root, name), filepath.Join(dir, name))
	}
	// What asks git for the files of the tree finds them.
	if out, err := run(t.Context(), dir, "git init -q . && git add -A"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Lstat(from)
	if os.IsNotExist(err) {
		return // it is deleted, and git has not been told yet
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if info.Mode()&fs.ModeSymlink != 0 && !strings.Contains(from, "bin/tools/") {
		target, err := os.Readlink(from)
		if err == nil {
			err = os.Symlink(target, to)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, info.Mode().Perm()|0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
