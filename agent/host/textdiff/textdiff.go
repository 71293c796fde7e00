// Package textdiff compares configurations line by line.
package textdiff

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// diffContext is how many equal lines a unified diff shows around a change.
const diffContext = 2

// Unified compares two texts in the form of diff -u (POSIX, "Diff -u Output Format"). It is empty for equal ones.
func Unified(oldName, newName string, before, after []string) string {
	ops := editScript(before, after)
	var b strings.Builder
	for at := 0; at < len(ops); {
		if ops[at].kind == ' ' {
			at++
			continue
		}
		from, to := hunk(ops, at)
		if b.Len() == 0 {
			fmt.Fprintf(&b, "--- %s\n+++ %s\n", oldName, newName)
		}
		writeHunk(&b, ops[from:to])
		at = to
	}
	return b.String()
}

// edit is one line of a diff: kept (' '), gone ('-') or new ('+'), and how many lines came before it on each side.
type edit struct {
	kind           byte
	text           string
	oldLine, count int // count: lines of the new side before it
}

// editScript is the shortest one, by the longest common subsequence. Texts are configuration files, so short.
func editScript(a, b []string) []edit {
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
				continue
			}
			common[i][j] = max(common[i+1][j], common[i][j+1])
		}
	}
	var ops []edit
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			ops = append(ops, edit{' ', a[i], i, j})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			ops = append(ops, edit{'-', a[i], i, j})
			i++
		default:
			ops = append(ops, edit{'+', b[j], i, j})
			j++
		}
	}
	return ops
}

// hunk returns the bounds of the hunk around the first change at or behind at: changes with few equal lines between.
func hunk(ops []edit, at int) (from, to int) {
	from, to = max(0, at-diffContext), at
	for quiet := 0; to < len(ops) && quiet <= 2*diffContext; to++ {
		quiet++
		if ops[to].kind != ' ' {
			quiet = 0
		}
	}
	for to > at && ops[to-1].kind == ' ' {
		to--
	}
	return from, min(len(ops), to+diffContext)
}

func writeHunk(b *strings.Builder, ops []edit) {
	var gone, came int
	for _, o := range ops {
		if o.kind != '+' {
			gone++
		}
		if o.kind != '-' {
			came++
		}
	}
	fmt.Fprintf(b, "@@ -%s +%s @@\n", span(ops[0].oldLine, gone), span(ops[0].count, came))
	for _, o := range ops {
		fmt.Fprintf(b, "%c%s\n", o.kind, o.text)
	}
}

// span is a range of lines; an empty one names the line before it.
func span(before, lines int) string {
	switch lines {
	case 0:
		return fmt.Sprintf("%d,0", before)
	case 1:
		return fmt.Sprint(before + 1)
	}
	return fmt.Sprintf("%d,%d", before+1, lines)
}

// Lines splits a file's text, for a diff.
func Lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// Digest is the SHA-256 of the lines, as "sha256:<hex>".
func Digest(lines []string) string {
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return "sha256:" + hex.EncodeToString(sum[:])
}
