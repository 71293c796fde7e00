package view

import "strings"

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
