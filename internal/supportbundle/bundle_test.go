package supportbundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func made(t *testing.T, c Config) (Manifest, map[string]string) {
	t.Helper()
	var b bytes.Buffer
	m, err := Write(t.Context(), &b, c)
	if err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return m, files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(text)
	}
}

func text(name, s string, err error) Part {
	return Part{Name: name, Make: func(context.Context) ([]byte, error) { return []byte(s), err }}
}

func TestABundleIsWholeWithoutWhatIsMissing(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	m, files := made(t, Config{Folder: "f", PartTime: 50 * time.Millisecond, Parts: []Part{
		text("a.txt", "first", nil),
		text("half.txt", "half of it", errors.New("broken off")),
		text("none.txt", "", errors.New("no bearer abc123")),
		{Name: "slow.txt", Make: func(ctx context.Context) ([]byte, error) {
			<-ended // even after its context has ended
			return nil, ctx.Err()
		}},
		JSON("n.json", func(context.Context) (int, error) { return 7, nil }),
	}})
	for name, want := range map[string]string{"f/a.txt": "first", "f/half.txt": "half of it", "f/n.json": "7"} {
		if files[name] != want {
			t.Errorf("%s: %q", name, files[name])
		}
	}
	if len(files) != 4 || files["f/bundle.json"] == "" {
		t.Errorf("files %v", files)
	}
	if m.Missing["half.txt"] != "broken off" || m.Missing["none.txt"] != "no bearer [redacted]" ||
		!strings.Contains(m.Missing["slow.txt"], "longer than") || len(m.Missing) != 3 {
		t.Errorf("missing %v", m.Missing)
	}
}

func TestABundleIsBounded(t *testing.T) {
	t.Parallel()
	line := strings.Repeat("x", 99) + "\n"
	var parts []Part
	for i := range 10 {
		parts = append(parts, text(string(rune('a'+i)), strings.Repeat(line, PartBytes/100+1)+"the end", nil))
	}
	m, files := made(t, Config{Parts: parts})
	all := 0
	for name, s := range files {
		if len(s) > PartBytes {
			t.Errorf("%s has %d bytes", name, len(s))
		}
		all += len(s)
	}
	if all > AllBytes+10_000 || len(m.Cut) != 10 || !slices.Contains(m.Cut, "a") {
		t.Errorf("%d bytes, cut %v", all, m.Cut)
	}
	if !strings.HasSuffix(files["a"], "the end") || !strings.HasPrefix(files["a"], "xxx") {
		t.Error("what is kept of a log is not its end")
	}
}

func TestKnownSecretsAreMasked(t *testing.T) {
	t.Parallel()
	_, files := made(t, Config{Secrets: []string{"s3cret-word", "abc"}, Parts: []Part{
		text("a", "s3cret-word abc postgres://u:other-one@h/d", nil),
	}})
	if got := files["a"]; got != "[redacted] abc postgres://u:[redacted]@h/d" {
		t.Errorf("got %q", got)
	}
}
