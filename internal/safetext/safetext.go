// Package safetext removes or escapes characters that steer a terminal or break a parser. Text from agents, BMCs,
// firmware and other systems is cleaned where it enters. Every output for people and programs escapes the rest.
package safetext

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// replacement stands for bytes that are not UTF-8.
const replacement = "?"

// unsafe are inclusive ranges of code points beyond U+009F: bidirectional controls (Unicode 16, UAX 9, section 2),
// separators of lines, interlinear annotations, the byte order mark, and noncharacters.
var unsafe = [][2]rune{
	{0x061c, 0x061c}, {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069}, {0xfdd0, 0xfdef}, {0xfeff, 0xfeff},
	{0xfff9, 0xfffb}, {0xfffe, 0xffff},
}

// Unsafe reports whether r steers a terminal, reorders a line, or is refused by a parser of YAML: C0 and C1 controls
// except tab and newline, bidirectional controls, separators, U+FEFF and noncharacters of the basic plane.
func Unsafe(r rune) bool {
	switch {
	case r == '\t' || r == '\n':
		return false
	case r < ' ' || r >= 0x7f && r < 0xa0:
		return true
	case r < unsafe[0][0]:
		return false
	}
	return slices.ContainsFunc(unsafe, func(of [2]rune) bool { return of[0] <= r && r <= of[1] })
}

// Clean removes unsafe characters and replaces bytes that are not UTF-8 with question marks. Tabs and newlines stay.
func Clean(s string) string {
	if !strings.ContainsFunc(s, suspicious) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if Unsafe(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, replacement))
}

// suspicious also holds for bytes that are not UTF-8, which are read as U+FFFD.
func suspicious(r rune) bool { return r == utf8.RuneError || Unsafe(r) }

// Line returns the cleaned text on one line: each run of tabs and newlines is one space, and none is at either end.
func Line(s string) string {
	return strings.Join(strings.FieldsFunc(Clean(s), func(r rune) bool { return r == '\t' || r == '\n' }), " ")
}

// Bounded returns Line with at most so many characters, the last of which is an ellipsis where text was cut.
func Bounded(s string, most int) string {
	s = Line(s)
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

// Escape writes unsafe characters as \u202e and bytes that are not UTF-8 as \xff, so that a reader sees them.
func Escape(s string) string {
	if !strings.ContainsFunc(s, suspicious) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		_, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case Unsafe(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Quoted escapes unsafe characters of a document whose strings with such characters stand in double quotes, as in JSON.
// A parser reads the same strings; bytes that are not UTF-8 are read as U+FFFD.
func Quoted(document []byte) []byte {
	return []byte(Escape(strings.ToValidUTF8(string(document), "\ufffd")))
}

// Writer escapes unsafe characters and writes the text to W. Each write must hold whole characters.
type Writer struct {
	W io.Writer
	// Terminal keeps this program's own colours, and its ways to redraw a line.
	Terminal bool
}

// Write writes p escaped, and returns len(p) where nothing failed.
func (w Writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.W, w.escaped(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w Writer) escaped(s string) string {
	if !w.Terminal {
		return Escape(s)
	}
	var b strings.Builder
	for s != "" {
		i := strings.IndexAny(s, "\r\x1b")
		if i < 0 {
			break
		}
		b.WriteString(Escape(s[:i]))
		n := ownSequence(s[i:])
		if n == 0 {
			b.WriteString(Escape(s[i : i+1]))
			n = 1
		} else {
			b.WriteString(s[i : i+n])
		}
		s = s[i+n:]
	}
	b.WriteString(Escape(s))
	return b.String()
}

// ownSequence returns the length in bytes of the sequence that s begins with, and 0 where it is none of this
// program's: a carriage return, erasure of the line, or a colour (ECMA-48, EL and SGR).
func ownSequence(s string) int {
	if s[0] == '\r' {
		return 1
	}
	rest, ok := strings.CutPrefix(s, "\x1b[")
	if !ok {
		return 0
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r != ';' && (r < '0' || r > '9') })
	if end < 0 || rest[end] != 'm' && (rest[end] != 'K' || end > 0) {
		return 0
	}
	return len("\x1b[") + end + 1
}
