package report

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// docs is the directory of the results and their page, seen from here.
const docs = "../../../docs/reference"

// TestPageIsMadeOfTheResults holds that page and plots in the tree are what the command makes of the JSON, and no
// other.
func TestPageIsMadeOfTheResults(t *testing.T) {
	runs, err := Load(filepath.Join("../../..", Path))
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) < 5 {
		t.Fatalf("%d runs: this is not the whole file", len(runs))
	}
	stored, err := os.ReadFile(filepath.Join("../../..", Path))
	if again, failed := encode(runs); err != nil || failed != nil || !bytes.Equal(again, stored) {
		t.Errorf("%s has another form than benchmarks store it in (%v, %v)", Path, err, failed)
	}
	want := Page(runs)
	for name, b := range want {
		if got, err := os.ReadFile(filepath.Join(docs, name)); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%s is not made of the results (%v): make bench-page", name, err)
		}
	}
	plots, err := filepath.Glob(filepath.Join(docs, "plots", "*.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range plots {
		if want["plots/"+filepath.Base(path)] == nil {
			t.Errorf("%s belongs to no result: make bench-page", path)
		}
	}
}

// TestResultsSayWhereTheyComeFrom holds that each run names machine, day and commit, and each figure has its sentence.
func TestResultsSayWhereTheyComeFrom(t *testing.T) {
	runs, err := Load(filepath.Join("../../..", Path))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, r := range runs {
		if r.Title == "" || r.About == "" || r.Command == "" || r.Machine == "" || len(r.Date) != 10 || r.Commit == "" {
			t.Errorf("run %q lacks a part: %+v", r.Name, r)
		}
		if names[r.Name] || len(r.Figures) == 0 {
			t.Errorf("run %q stands twice, or has no figures", r.Name)
		}
		names[r.Name] = true
		for _, f := range r.Figures {
			if f.What == "" || !strings.HasSuffix(f.Says, ".") || strings.Contains(f.Says, ". ") {
				t.Errorf("%s, %q: %q is not one sentence", r.Name, f.What, f.Says)
			}
		}
	}
}

func TestARunReplacesTheOneBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	if err := os.WriteFile(
		path,
		[]byte(`{"runs":[{"name":"a","title":"old"},{"name":"b","title":"other"}]}`),
		0o600,
	); err != nil {
		t.Fatal(err)
	}
	for _, r := range []Run{{Name: "a", Title: "new", Figures: []Figure{{What: "<x>", Limit: AtMost(2)}}}, {Name: "c"}} {
		if err := Store(path, r); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := Load(path)
	if err != nil || len(runs) != 3 || runs[0].Title != "new" || runs[1].Title != "other" || runs[2].Name != "c" ||
		runs[0].Figures[0].What != "<x>" || runs[0].Figures[0].Limit.Value != 2 {
		t.Errorf("%+v, %v", runs, err)
	}
	if err := os.WriteFile(path, []byte(`{"runs":[{"nme":"a"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil {
		t.Error("a misspelled field was taken")
	}
	if err := Store(path, Run{Name: "a"}); err == nil {
		t.Error("a file that cannot be read was replaced")
	}
}

func TestARunSaysWhereItHappened(t *testing.T) {
	r, err := Run{Name: "a"}.Here(context.Background(), "lab/bench")
	if err != nil || r.Commit == "" || len(r.Date) != 10 || !strings.HasPrefix(r.Command, "lab/bench ") || r.Recorded {
		t.Errorf("%+v, %v", r, err)
	}
	path := filepath.Join(t.TempDir(), "info")
	text := "model name\t: Some CPU\nmodel name\t: Another\nMemTotal:       25165000 kB\nPRETTY_NAME=\"Some Linux 1\"\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := machine(path, path, path); !strings.HasSuffix(got, " processors (Some CPU), 24 GiB, Some Linux 1") {
		t.Errorf("%q", got)
	}
	if got := machine("", "", ""); !strings.HasSuffix(got, " processors") {
		t.Errorf("%q of nothing", got)
	}
}

func TestPageShowsLimitsAndVerdicts(t *testing.T) {
	r := Run{
		Name:     "x",
		Title:    "Things",
		About:    "About.",
		Command:  "make x",
		Machine:  "m",
		Date:     "2026-01-02",
		Commit:   "abc",
		Recorded: true,
		Curve:    &Curve{Title: "Rate & more", X: "clients", Measured: "ours", Limit: "theirs"},
		Figures: []Figure{
			{What: "few", Value: 1500, Unit: "/s", Limit: AtLeast(2000, "a | b"), Says: "One.", X: 8},
			{What: "many", Value: 2500, Unit: "/s", Limit: AtLeast(2000, ""), Says: "Two.", X: 32},
			{What: "lost", Value: 0, Limit: AtMost(0), Says: "None."},
			{What: "plain", Value: 0.25, Unit: "ms", Says: "Alone."},
		},
	}
	made := Page([]Run{r})
	page := string(made[PageName])
	for _, want := range []string{
		"Recorded from `make x` on 2026-01-02, commit abc: m.",
		"![Rate & more](plots/x-curve.svg)", "![Things: each figure as a share of its limit](plots/x-limits.svg)",
		"|few|1,500 /s|≥ 2,000 /s (a \\| b)|**missed**|One.|\n", "|many|2,500 /s|≥ 2,000 /s|met|Two.|\n",
		"|lost|0|≤ 0|met|None.|\n", "|plain|0.250 ms|||Alone.|\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	bars, curve := string(made["plots/x-limits.svg"]), string(made["plots/x-curve.svg"])
	for _, want := range []string{"0.75 ≥ 1", "1.25 ≥ 1", orange, green} {
		if !strings.Contains(bars, want) {
			t.Errorf("no %q in the bars", want)
		}
	}
	if strings.Contains(bars, "lost") || strings.Contains(bars, "plain") {
		t.Error("bars of what has no share of a limit")
	}
	if !strings.Contains(curve, "Rate &amp; more") || strings.Count(curve, "<polyline") != 2 {
		t.Errorf("curve:\n%s", curve)
	}
	wellFormed(t, bars)
	wellFormed(t, curve)
	r.Curve, r.Figures = nil, r.Figures[3:]
	if made := Page([]Run{r}); len(made) != 1 {
		t.Errorf("%d files of a run without limits and curve", len(made))
	}
}

func wellFormed(t *testing.T, svg string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
}
