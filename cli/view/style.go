package view

import (
	"strings"
	"time"
	"unicode"

	"github.com/ingot-metal/ingot/internal/safetext"
)

// Style is how text looks: with colours or, as the zero value, without, and with ages that are counted until Now.
type Style struct {
	Colour bool
	Now    time.Time
}

// SGR parameters of ECMA-48, the eight colours that every terminal has.
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
	orange = "1;33"
	grey   = "90"
)

func (s Style) paint(sgr, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + sgr + "m" + text + "\x1b[0m"
}

// Bad is how errors look.
func (s Style) Bad(text string) string { return s.paint(red, text) }

// Good is how success looks.
func (s Style) Good(text string) string { return s.paint(green, text) }

// Dim is for what may be overlooked.
func (s Style) Dim(text string) string { return s.paint(grey, text) }

// Warn is for what should not be overlooked.
func (s Style) Warn(text string) string { return s.paint(yellow, text) }

// Bold is for what a line is about.
func (s Style) Bold(text string) string { return s.paint(bold, text) }

// Width counts the columns that text takes on a terminal: escape sequences none, wide signs two.
func Width(text string) int {
	n, escaped := 0, false
	for _, r := range text {
		switch {
		case escaped:
			escaped = r != 'm'
		case r == '\x1b':
			escaped = true
		default:
			n += runeWidth(r)
		}
	}
	return n
}

// runeWidth follows Unicode's East_Asian_Width for the signs that appear here and for the common wide blocks.
func runeWidth(r rune) int {
	switch {
	case unicode.Is(unicode.Mn, r), r == '\u200d', r == '\ufe0f':
		return 0
	case r == '⛔', r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3,
		r >= 0xf900 && r <= 0xfaff, r >= 0xff00 && r <= 0xff60, r >= 0x1f300 && r <= 0x1faff:
		return 2
	}
	return 1
}

// Clean returns text as safetext.Clean does, on one line: text of a machine is shown, and steers no terminal.
func Clean(text string) string {
	return safetext.Clean(strings.NewReplacer("\t", " ", "\n", " ").Replace(text))
}
