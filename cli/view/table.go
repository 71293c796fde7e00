package view

import "strings"

// Table is a header and rows of cells.
type Table struct {
	Header []string
	Rows   [][]string
}

// Cell is a column's heading, and the text of a row in that column.
type Cell struct{ Heading, Text string }

// Columns describes a table: the cells of a row, and further ones that only a wide table has. An empty row returns the
// headings.
type Columns[T any] func(s Style, row T) (cells, wide []Cell)

// TableOf returns the table of rows.
func TableOf[T any](s Style, wide bool, columns Columns[T], rows ...T) *Table {
	line := func(row T, part func(Cell) string) (parts []string) {
		cells, more := columns(s, row)
		if wide {
			cells = append(cells, more...)
		}
		for _, c := range cells {
			parts = append(parts, part(c))
		}
		return parts
	}
	var none T
	t := &Table{Header: line(none, func(c Cell) string { return c.Heading })}
	for _, row := range rows {
		t.Add(line(row, func(c Cell) string { return c.Text })...)
	}
	return t
}

// Add appends a row. A cell is one line, whatever a machine reported.
func (t *Table) Add(cells ...string) {
	for i := range cells {
		cells[i] = flat.Replace(cells[i])
	}
	t.Rows = append(t.Rows, cells)
}

var flat = strings.NewReplacer("\n", " ", "\t", " ")

// String aligns the columns with two spaces between them and ends each line with a newline. Empty cells are
// shown as "-".
func (t *Table) String() string {
	widths := t.widths()
	var b strings.Builder
	writeRow(&b, t.Header, widths)
	for _, row := range t.Rows {
		writeRow(&b, row, widths)
	}
	return b.String()
}

func (t *Table) widths() []int {
	widths := make([]int, len(t.Header))
	for i, cell := range t.Header {
		widths[i] = Width(cell)
	}
	for _, row := range t.Rows {
		for i, cell := range row {
			widths[i] = max(widths[i], Width(dash(cell)))
		}
	}
	return widths
}

func writeRow(b *strings.Builder, row []string, widths []int) {
	for i, cell := range row {
		cell = dash(cell)
		b.WriteString(cell)
		if i < len(row)-1 {
			b.WriteString(strings.Repeat(" ", widths[i]-Width(cell)+2))
		}
	}
	b.WriteByte('\n')
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Fields is a two-column sheet for one thing: names on the left, values on the right; empty values are left out.
type Fields struct{ rows [][2]string }

// Add appends a line unless value is empty.
func (f *Fields) Add(name, value string) {
	if value != "" {
		f.rows = append(f.rows, [2]string{name + ":", value})
	}
}

// String aligns the values.
func (f *Fields) String() string {
	width := 0
	for _, r := range f.rows {
		width = max(width, Width(r[0]))
	}
	var b strings.Builder
	for _, r := range f.rows {
		// Further lines of a value stand below its first: they are no fields of their own.
		value := strings.ReplaceAll(r[1], "\n", "\n"+strings.Repeat(" ", width+2))
		b.WriteString(r[0] + strings.Repeat(" ", width-Width(r[0])+2) + value + "\n")
	}
	return b.String()
}

const rule = "─────────────────────────────────────────────────────────────"

// box draws lines behind a bar with a rule above and below.
func box(lines []string) string {
	var b strings.Builder
	b.WriteString("┌" + rule + "\n")
	for _, l := range lines {
		b.WriteString("│ " + l + "\n")
	}
	b.WriteString("└" + rule + "\n")
	return b.String()
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-Width(s)))
}

func trimRight(s string) string { return strings.TrimRight(s, " ") }

// Bar draws a progress bar of the given number of columns.
func Bar(percent, columns int) string {
	percent = min(max(percent, 0), 100)
	full := percent * columns / 100
	return "[" + strings.Repeat("█", full) + strings.Repeat("░", columns-full) + "]"
}
