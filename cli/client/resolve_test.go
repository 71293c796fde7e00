package client

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestResolvePrecedence(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "ctx-token", "from-context\n")
	flagToken := write(t, dir, "flag-token", "from-flag\n")
	file := &File{CurrentContext: "lab", Contexts: map[string]Context{
		"lab":   {Server: "lab:1", CAFile: "ca.pem", TokenFile: "ctx-token"},
		"other": {Server: "other:1", CAHash: "ab", Token: "literal"},
	}}
	cases := map[string]struct {
		flags Flags
		env   map[string]string
		want  Target
	}{
		"context":       {want: Target{Server: "lab:1", CAFile: filepath.Join(dir, "ca.pem"), Token: "from-context"}},
		"named context": {flags: Flags{Context: "other"}, want: Target{Server: "other:1", CAHash: "ab", Token: "literal"}},
		"environment": {
			env:  map[string]string{"INGOT_SERVER": "env:1", "INGOT_TOKEN": "from-env", "INGOT_CA_FILE": "/env.pem"},
			want: Target{Server: "env:1", CAFile: "/env.pem", Token: "from-env"},
		},
		"flags": {
			flags: Flags{Server: "flag:1", CAHash: "cd", TokenFile: flagToken},
			env:   map[string]string{"INGOT_SERVER": "env:1", "INGOT_TOKEN": "from-env", "INGOT_CA_FILE": "/env.pem"},
			want:  Target{Server: "flag:1", CAHash: "cd", Token: "from-flag"},
		},
	}
	for name, c := range cases {
		got, err := Resolve(c.flags, func(k string) string { return c.env[k] }, file, dir)
		if err != nil || got != c.want {
			t.Errorf("%s: got %+v, %v; want %+v", name, got, err, c.want)
		}
	}
}

func TestResolveRefuses(t *testing.T) {
	none := func(string) string { return "" }
	if _, err := Resolve(Flags{}, none, &File{}, ""); !errors.Is(err, ErrNoServer) {
		t.Errorf("nothing configured: %v", err)
	}
	if _, err := Resolve(Flags{Context: "gone"}, none, &File{}, ""); err == nil ||
		!strings.Contains(err.Error(), `"gone"`) {
		t.Errorf("unknown context: %v", err)
	}
	two := write(t, t.TempDir(), "tokens", "one\ntwo\n")
	if _, err := Resolve(Flags{Server: "s:1", TokenFile: two}, none, &File{}, ""); err == nil {
		t.Error("a file with two tokens was taken")
	}
}

func TestLoadRefusesUnknownKeys(t *testing.T) {
	path := write(t, t.TempDir(), "config.yaml", "contexts:\n  lab: {sever: lab:1}\n")
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "sever") {
		t.Errorf("got %v", err)
	}
}

func TestSaveAndLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "config.yaml")
	want := &File{CurrentContext: "lab", Contexts: map[string]Context{"lab": {Server: "lab:1", Token: "x"}}}
	if err := want.Save(path); err != nil {
		t.Fatal(err)
	}
	got, err := Load(path)
	if err != nil || got.CurrentContext != "lab" || got.Contexts["lab"] != want.Contexts["lab"] {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestLoadRefusesASecondDocument of the configuration file: it would be left out.
func TestLoadRefusesASecondDocument(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	for text, good := range map[string]bool{
		"current_context: a\n":                              true,
		"---\ncurrent_context: a\n":                         true,
		"current_context: a\n---\ncurrent_context: b\n":     false,
		"current_context: a\n---\n":                         false,
		"current_context: a\n...\n---\ncontexts: {b: {}}\n": false,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path)
		if (err == nil) != good || !good && !strings.Contains(err.Error(), "more than one YAML document") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
