package table_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/ingot-metal/ingot/cli/table"
)

func flat(t table.Table) string {
	var b strings.Builder
	for _, row := range append([][]table.Cell{t.Header}, t.Rows...) {
		for i, c := range row {
			if i > 0 {
				b.WriteString("|")
			}
			b.WriteString(strings.ReplaceAll(c.Text, "\n", "\\n"))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func utf16le(s string) string {
	out := []byte("\xff\xfe")
	for _, u := range utf16.Encode([]rune(s)) {
		out = append(out, byte(u), byte(u>>8))
	}
	return string(out)
}

// TestCases: every file of testdata/cases is read as in its .want; one without is read to an error.
func TestCases(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/cases/*.csv")
	if err != nil || len(files) < 7 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(strings.TrimSuffix(file, ".csv") + ".want")
		if err != nil {
			t.Errorf("%s has no .want beside it: %v", file, err)
			continue
		}
		got, err := table.Read(raw)
		text := flat(got)
		if err != nil {
			text = "error: " + err.Error() + "\n"
		}
		if text != string(want) {
			t.Errorf("%s:\n%swant\n%s", file, text, want)
		}
	}
}

func TestForms(t *testing.T) {
	t.Parallel()
	const want = "a|b\n1|2\n"
	for name, raw := range map[string]string{
		"plain": "a,b\n1,2\n", "mark": "\ufeffa,b\n1,2", "old Macintosh": "a,b\r1,2\r", "Windows": "a,b\r\n1,2\r\n",
		"semicolons": "a;b\n1;2\n", "tabs": "a\tb\n1\t2\n", "bars": "a|b\n1|2\n", "named": "sep=;\na;b\n1;2\n",
		"blank lines": "\n\na,b\n\n1,2\n,,\n", "quotes": "\"a\",\"b\"\n\"1\", 2 \n", "UTF-16": utf16le("a\tb\r\n1\t2\r\n"),
	} {
		got, err := table.Read([]byte(raw))
		if err != nil || flat(got) != want {
			t.Errorf("%s: %q, %v", name, flat(got), err)
		}
	}
	for name, raw := range map[string]string{"Latin 1": "a,b\n1,caf\xe9\n", "NUL": "a,b\n\x00,1\n", "half UTF-16": "\xff\xfea"} {
		if _, err := table.Read([]byte(raw)); !errors.Is(err, table.ErrNotText) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := table.Read([]byte(" \n,,\n")); !errors.Is(err, table.ErrEmpty) {
		t.Errorf("nothing: %v", err)
	}
	got, err := table.Read([]byte("a;b\n\n1;2\n"))
	if err != nil || got.Rows[0][1] != (table.Cell{Text: "2", Line: 3, Col: 3}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzTable(f *testing.F) {
	for _, s := range []string{"a,b\n1,2\n", "sep=;\r\na;b\r1;\"2\n\"", "\xff\xfea\x00,\x00", "\xef\xbb\xbfa\tb"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := table.Read(raw)
		if err == nil && len(got.Header) == 0 {
			t.Error("no header and no error")
		}
		for _, row := range got.Rows {
			for _, c := range row {
				if c.Line < 1 || c.Col < 1 || strings.TrimSpace(c.Text) != c.Text {
					t.Errorf("%+v", c)
				}
			}
		}
	})
}
