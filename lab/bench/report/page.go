package report

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// PageName is the page's file, beside the file of results.
const PageName = "performance.md"

const opening = `# Performance

<!-- Made of performance.json by "make bench-page". Run the benchmark or edit the JSON, not this page. -->

What Ingot does on one machine, benchmark by benchmark. Each figure stands beside its limit, and where another figure
of the same run sets that limit, the row says so. *Recorded* figures were written down from a run of that day and
commit; all others were stored by the run itself.

Compare ratios and processor time, and only between runs made one after the other on a quiet machine. Disks of virtual
machines acknowledge a flush in 0.1 to 0.7 ms, which makes everything that commits look better than on real disks,
` + "`pgbench`" + ` most of all. One run says little about a tenth.

`

// WritePage writes the page and its plots beside the file of results that they are made of.
func WritePage(path string) error {
	runs, err := Load(path)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.RemoveAll(filepath.Join(dir, "plots")); err != nil {
		return fmt.Errorf("remove the old plots: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "plots"), 0o755); err != nil {
		return fmt.Errorf("make the folder of plots: %w", err)
	}
	for name, b := range Page(runs) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return fmt.Errorf("write the performance page: %w", err)
		}
	}
	return nil
}

// Page makes the page and its plots, by file name. The same runs make the same bytes.
func Page(runs []Run) map[string][]byte {
	out := map[string][]byte{}
	var b strings.Builder
	b.WriteString(opening)
	for _, r := range runs {
		fmt.Fprintf(&b, "## %s\n\n%s\n\n", r.Title, wrap(r.About))
		b.WriteString(wrap(r.provenance()) + "\n\n")
		plots := map[string]string{"limits": r.bars(), "curve": r.lines()}
		for _, kind := range []string{"curve", "limits"} {
			if plots[kind] == "" {
				continue
			}
			name := "plots/" + r.Name + "-" + kind + ".svg"
			out[name] = []byte(plots[kind])
			fmt.Fprintf(&b, "![%s](%s)\n\n", r.alt(kind), name)
		}
		b.WriteString("|figure|measured|limit||what it says|\n|---|---:|---:|---|---|\n")
		for _, f := range r.Figures {
			fmt.Fprintf(&b, "|%s|%s|%s|%s|%s|\n", cell(f.What), quantity(f.Value, f.Unit), cell(f.limit()), f.verdict(),
				cell(f.Says))
		}
		b.WriteByte('\n')
	}
	out[PageName] = []byte(strings.TrimRight(b.String(), "\n") + "\n")
	return out
}

// cell keeps a text from ending its table cell.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func (r Run) provenance() string {
	kind := "Stored by"
	if r.Recorded {
		kind = "Recorded from"
	}
	return fmt.Sprintf("%s `%s` on %s, commit %s: %s.", kind, r.Command, r.Date, r.Commit, r.Machine)
}

func (r Run) alt(kind string) string {
	if kind == "curve" {
		return r.Curve.Title
	}
	return r.Title + ": each figure as a share of its limit"
}

func (f Figure) limit() string {
	if f.Limit == nil {
		return ""
	}
	sign := "≤ "
	if f.Limit.AtLeast {
		sign = "≥ "
	}
	text := sign + quantity(f.Limit.Value, f.Unit)
	if f.Limit.Of != "" {
		text += " (" + f.Limit.Of + ")"
	}
	return text
}

func (f Figure) verdict() string {
	switch {
	case f.Limit == nil:
		return ""
	case f.Met():
		return "met"
	}
	return "**missed**"
}

// quantity shows a number to about three digits.
func quantity(v float64, unit string) string {
	digits := 0
	switch a := math.Abs(v); {
	case a == math.Trunc(a) || a >= 100:
	case a >= 10:
		digits = 1
	case a >= 1:
		digits = 2
	default:
		digits = 3
	}
	return strings.TrimSpace(thousands(strconv.FormatFloat(v, 'f', digits, 64)) + " " + unit)
}

// thousands puts commas into the whole part of a number.
func thousands(s string) string {
	whole, rest, dot := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if dot {
		return whole + "." + rest
	}
	return whole
}

// wrap breaks a paragraph into lines of at most 118 columns.
func wrap(text string) string {
	const columns = 118
	var b strings.Builder
	used := 0
	for i, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case i == 0:
		case used+1+n > columns:
			b.WriteByte('\n')
			used = 0
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += n
	}
	return b.String()
}
