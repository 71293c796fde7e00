// Package filter parses the language in which lists are narrowed: terms joined by commas, all of which must hold.
//
//	key=value  key!=value  key in (a, b)  key not in (a, b)
//
// A value ends at the next comma, or stands in double quotes, in which \" and \\ are a quote and a backslash. A bare
// value that ends in * stands for all that begin like it; a bare * for every value that is set.
package filter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Term is one condition: the key has one of the values, or with Not it has none of them.
type Term struct {
	Key    string
	Not    bool
	Values []Value
	// Pos is the byte at which the term begins, from 1.
	Pos int
}

// Value is one that a key is compared with.
type Value struct {
	Text string
	// Prefix matches every value that begins with Text.
	Prefix bool
	// Pos is the byte at which the value begins, from 1.
	Pos int
}

// Error is the position at which a text stops being a filter, and the reason.
type Error struct {
	// Pos is a byte of the text, from 1.
	Pos int
	// Problem is what stands there, or what was expected.
	Problem string
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("position %d: %s", e.Pos, e.Problem) }

// Parse reads a filter. An empty text has no terms. Its errors are of type *Error.
func Parse(s string) ([]Term, error) {
	if s == "" {
		return nil, nil
	}
	p := &parser{text: s}
	if i := strings.IndexFunc(s, unicode.IsControl); i >= 0 {
		return nil, p.errorAt(i, "a control character")
	}
	var out []Term
	for {
		t, err := p.term()
		if err != nil {
			return nil, err
		}
		out = append(out, t)
		if p.space(); p.at == len(p.text) {
			return out, nil
		}
		if !p.take(",") {
			return nil, p.expected("a comma or the end")
		}
	}
}

type parser struct {
	text string
	at   int
}

func (p *parser) errorAt(at int, format string, args ...any) error {
	return &Error{Pos: at + 1, Problem: fmt.Sprintf(format, args...)}
}

func (p *parser) expected(what string) error {
	found := "the end"
	if rest := []rune(p.text[p.at:]); len(rest) > 0 {
		found = strconv.Quote(string(rest[:min(len(rest), 12)]))
	}
	return p.errorAt(p.at, "expected %s, found %s", what, found)
}

func (p *parser) space() {
	p.at += len(p.text[p.at:]) - len(strings.TrimLeft(p.text[p.at:], " "))
}

func (p *parser) take(token string) bool {
	if !strings.HasPrefix(p.text[p.at:], token) {
		return false
	}
	p.at += len(token)
	return true
}

// word takes a word that a space or a bracket ends.
func (p *parser) word(w string) bool {
	rest, ok := strings.CutPrefix(p.text[p.at:], w)
	if !ok || rest == "" || rest[0] != ' ' && rest[0] != '(' {
		return false
	}
	p.at += len(w)
	p.space()
	return true
}

func (p *parser) term() (Term, error) {
	p.space()
	t := Term{Pos: p.at + 1}
	end := strings.IndexAny(p.text[p.at:], `=!(), "`)
	if end < 0 {
		end = len(p.text) - p.at
	}
	if end == 0 {
		return t, p.expected("a key")
	}
	t.Key = p.text[p.at : p.at+end]
	p.at += end
	p.space()
	var err error
	switch {
	case p.take("!="):
		t.Not = true
		fallthrough
	case p.take("="):
		var v Value
		v, err = p.value(",")
		t.Values = []Value{v}
	default:
		t.Not = p.word("not")
		if !p.word("in") {
			return t, p.expected("=, !=, in or not in after " + t.Key)
		}
		t.Values, err = p.list()
	}
	return t, err
}

func (p *parser) list() ([]Value, error) {
	if !p.take("(") {
		return nil, p.expected("( and values")
	}
	var out []Value
	for {
		v, err := p.value(",)")
		if err != nil {
			return nil, err
		}
		out = append(out, v)
		p.space()
		if p.take(")") {
			return out, nil
		}
		if !p.take(",") {
			return nil, p.expected("a comma or )")
		}
	}
}

// value reads a value that one of the characters ends, where it is not quoted.
func (p *parser) value(ends string) (Value, error) {
	p.space()
	v := Value{Pos: p.at + 1}
	if strings.HasPrefix(p.text[p.at:], `"`) {
		text, err := p.quoted()
		v.Text = text
		return v, err
	}
	rest := p.text[p.at:]
	if end := strings.IndexAny(rest, ends); end >= 0 {
		rest = rest[:end]
	}
	if v.Text = strings.TrimRight(rest, " "); v.Text == "" {
		return v, p.expected("a value")
	}
	p.at += len(rest)
	v.Text, v.Prefix = strings.CutSuffix(v.Text, "*")
	return v, nil
}

func (p *parser) quoted() (string, error) {
	begin := p.at
	var out strings.Builder
	for i := begin + 1; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c == '"':
			p.at = i + 1
			return out.String(), nil
		case c == '\\' && i+1 < len(p.text) && strings.IndexByte(`"\`, p.text[i+1]) >= 0:
			i++
			out.WriteByte(p.text[i])
		case c == '\\':
			return "", p.errorAt(i, `expected \" or \\, the two that a backslash stands before`)
		default:
			out.WriteByte(c)
		}
	}
	return "", p.errorAt(begin, "the quote does not end")
}

// IsPrefix reports whether the value matches all that begin like it.
func (v Value) IsPrefix() bool { return v.Prefix }

// String writes the value so that Parse reads it again.
func (v Value) String() string {
	bare := v.Text != "" && strings.Trim(v.Text, " ") == v.Text && !strings.ContainsAny(v.Text, `,()"`) &&
		!strings.HasSuffix(v.Text, "*")
	switch {
	case v.Prefix:
		return v.Text + "*"
	case bare:
		return v.Text
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v.Text) + `"`
}

// String writes the term so that Parse reads it again.
func (t Term) String() string {
	if len(t.Values) == 1 {
		return t.Key + map[bool]string{false: "=", true: "!="}[t.Not] + t.Values[0].String()
	}
	values := make([]string, len(t.Values))
	for i, v := range t.Values {
		values[i] = v.String()
	}
	return t.Key + map[bool]string{false: " in (", true: " not in ("}[t.Not] + strings.Join(values, ", ") + ")"
}

// Format writes terms so that Parse reads them again.
func Format(terms []Term) string {
	out := make([]string, len(terms))
	for i, t := range terms {
		out[i] = t.String()
	}
	return strings.Join(out, ",")
}

// Exact returns the one value that the key must have, where the term has no other condition.
func (t Term) Exact() (string, bool) {
	if t.Not || len(t.Values) != 1 || t.Values[0].Prefix {
		return "", false
	}
	return t.Values[0].Text, true
}

// Holds reports whether the term is true of a key's value. A key that is not set equals no value.
func (t Term) Holds(value string, set bool) bool {
	among := set && slices.ContainsFunc(t.Values, func(v Value) bool {
		return v.Text == value || v.Prefix && strings.HasPrefix(value, v.Text)
	})
	return among != t.Not
}

// Regexp is an anchored regular expression that a value matches where it is one of the term's. Each character that is
// neither letter nor digit is escaped, which Go and Postgres read alike.
func (t Term) Regexp() string {
	parts := make([]string, len(t.Values))
	for i, v := range t.Values {
		var b strings.Builder
		for _, r := range v.Text {
			if r < 0x80 && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
				b.WriteByte('\\')
			}
			b.WriteRune(r)
		}
		if parts[i] = b.String(); v.Prefix {
			parts[i] += ".*"
		}
	}
	return "^(?:" + strings.Join(parts, "|") + ")$"
}
