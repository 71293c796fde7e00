// Package userdata reads user-data as cloud-init reads it: which parts it has, and of which type each is. The rules are
// those of cloud-init 22.4.2 (Debian 12), cloudinit/user_data.py and cloudinit/handlers/__init__.py; the test runs that
// code where it is installed.
package userdata

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime/quotedprintable"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Most bounds user-data and each of its parts, in bytes and after decompression; mostParts their number, mostDepth how
// deep they are in each other.
const (
	Most      = 64 << 10
	mostParts = 1000
	mostDepth = 16
)

// Errors of Plain and Parts.
var (
	ErrTooLarge = fmt.Errorf("at most %d bytes, after decompression too", Most)
	ErrNotUTF8  = errors.New("not text in UTF-8")
)

// Types that cloud-init handles. A part-handler may add others.
const (
	CloudConfig = "text/cloud-config"
	Archive     = "text/cloud-config-archive"
	JSONPatch   = "text/cloud-config-jsonp"
	PartHandler = "text/part-handler"
	ShellScript = "text/x-shellscript"
	// Broken is of a part that is declared compressed and can't be decompressed. cloud-init then fails on user-data as a
	// whole (_handle_error).
	Broken = "application/x-broken"
)

// beginnings are INCLUSION_TYPES_MAP, the longest first as in INCLUSION_SRCH.
var beginnings = []struct{ text, kind string }{
	{"#cloud-config-archive", Archive}, {"#cloud-config-jsonp", JSONPatch}, {"## template: jinja", "text/jinja2"},
	{"#cloud-boothook", "text/cloud-boothook"}, {"#include-once", "text/x-include-once-url"},
	{"#cloud-config", CloudConfig}, {"#part-handler", PartHandler}, {"#include", "text/x-include-url"},
	{"#!", ShellScript},
}

// byHeader are types that a MIME part alone can have.
var byHeader = []string{"text/x-shellscript-per-boot", "text/x-shellscript-per-instance", "text/x-shellscript-per-once"}

// compressed are DECOMP_TYPES.
var compressed = []string{"application/gzip", "application/gzip-compressed", "application/gzipped",
	"application/x-compress", "application/x-compressed", "application/x-gunzip", "application/x-gzip",
	"application/x-gzip-compressed"}

// Part is one part of user-data.
type Part struct{ Type, Content string }

// Handled reports whether cloud-init has a handler of its own for the part.
func (p Part) Handled() bool {
	return slices.Contains(byHeader, p.Type) ||
		slices.ContainsFunc(beginnings, func(b struct{ text, kind string }) bool { return b.kind == p.Type })
}

// TypeOf returns the type of a part by its beginning, "" for none (type_from_starts_with).
func TypeOf(content string) string {
	lower := strings.ToLower(strings.TrimLeftFunc(content, func(r rune) bool {
		return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f
	}))
	for _, b := range beginnings {
		if strings.HasPrefix(lower, b.text) {
			return b.kind
		}
	}
	return ""
}

// Plain returns the text of a file with user-data, which may be compressed with gzip: cloud-init reads it either way.
func Plain(raw []byte) (string, error) {
	if inflated, err := inflate(raw); err == nil || errors.Is(err, ErrTooLarge) {
		raw = inflated
		if err != nil {
			return "", err
		}
	}
	if len(raw) > Most {
		return "", ErrTooLarge
	}
	if !utf8.Valid(raw) {
		line := bytes.Count(raw[:invalidAt(raw)], []byte("\n")) + 1
		return "", fmt.Errorf("%w: the fault is in line %d", ErrNotUTF8, line)
	}
	return string(raw), nil
}

func invalidAt(raw []byte) int {
	for at := 0; at < len(raw); {
		r, size := utf8.DecodeRune(raw[at:])
		if r == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
	return len(raw)
}

func inflate(raw []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(z, Most+1))
	if err == nil && len(out) > Most {
		return nil, ErrTooLarge
	}
	return out, err
}

// Parts returns the parts of user-data; none where cloud-init finds none (convert_string, UserDataProcessor). Archives
// and lists of URLs are parts of their own here.
func Parts(text string) []Part {
	if !strings.Contains(strings.ToLower(text[:min(len(text), 4096)]), "mime-version:") {
		return []Part{typed("text/x-not-multipart", text)}
	}
	var out []Part
	walk(text, 0, &out)
	return out
}

func typed(kind, content string) Part {
	if kind == "text/plain" || kind == "text/x-not-multipart" || kind == ShellScript {
		if found := TypeOf(content); found != "" {
			kind = found
		}
	}
	return Part{kind, content}
}

func walk(text string, depth int, out *[]Part) {
	if depth > mostDepth || len(*out) >= mostParts {
		return
	}
	header, body := split(text)
	kind, boundary := contentType(header["content-type"])
	if strings.HasPrefix(kind, "multipart/") {
		for _, part := range between(body, boundary) {
			walk(part, depth+1, out)
		}
		return
	}
	content := decoded(header["content-transfer-encoding"], body)
	plain := content == body
	if slices.Contains(compressed, kind) {
		inflated, err := inflate([]byte(content))
		if err != nil && content != "" { // nothing is a gzip file for Python
			*out = append(*out, Part{Broken, ""})
			return
		}
		kind, content, plain = "text/plain", string(inflated), false
	}
	part := Part{kind, content}
	// The text of a part that isn't encoded reaches cloud-init as ASCII with escapes: other spaces before its beginning
	// are none there.
	first := strings.TrimLeft(content, " \t\r\n\v\f\x1c\x1d\x1e\x1f")
	if !plain || first == "" || first[0] < utf8.RuneSelf {
		part = typed(kind, content)
	}
	*out = append(*out, part)
	if kind == "message/rfc822" {
		walk(content, depth+1, out)
	}
}

// headerLine is headerRE of Python's email/feedparser.py.
var headerLine = regexp.MustCompile(`^(From |[\x21-\x39\x3b-\x7e]*:|[\t ])`)

// split parts the headers, names in lower case, from the body, as Python's parser does: a line that is no header begins
// the body. Of a header that is there twice the first counts.
func split(text string) (header map[string]string, body string) {
	header = map[string]string{}
	last := ""
	for len(text) > 0 {
		line, rest := cutLine(text)
		bare := strings.TrimRight(line, "\r\n")
		switch {
		case bare == "":
			return header, rest
		case !headerLine.MatchString(bare):
			return header, text
		case bare[0] == ' ' || bare[0] == '\t':
			if last != "" {
				header[last] += bare
			}
		default:
			name, value, found := strings.Cut(bare, ":")
			if name = strings.ToLower(name); found && !strings.HasPrefix(bare, "From ") {
				if last = name; header[name] != "" {
					last = ""
				} else {
					header[name] = strings.TrimSpace(value)
				}
			}
		}
		text = rest
	}
	return header, ""
}

// cutLine cuts behind \n, \r\n or a single \r.
func cutLine(text string) (line, rest string) {
	at := strings.IndexAny(text, "\r\n")
	switch {
	case at < 0:
		return text, ""
	case strings.HasPrefix(text[at:], "\r\n"):
		at++
	}
	return text[:at+1], text[at+1:]
}

// contentType is get_content_type and get_boundary of Python's email/message.py.
func contentType(value string) (kind, boundary string) {
	params := parameters(value)
	kind = strings.ToLower(strings.TrimSpace(params[0]))
	if strings.Count(kind, "/") != 1 {
		kind = "text/plain"
	}
	for _, p := range params[1:] {
		if name, v, ok := strings.Cut(p, "="); ok && strings.EqualFold(strings.TrimSpace(name), "boundary") {
			boundary = strings.TrimRight(unquoted(strings.TrimSpace(v)), " \t\r\n")
			break
		}
	}
	return kind, boundary
}

// parameters splits at semicolons outside of quotes.
func parameters(value string) []string {
	var out []string
	quoted, begin := false, 0
	for i := 0; i < len(value); i++ {
		switch {
		case value[i] == '\\' && quoted:
			i++
		case value[i] == '"':
			quoted = !quoted
		case value[i] == ';' && !quoted:
			out, begin = append(out, value[begin:i]), i+1
		}
	}
	return append(out, value[begin:])
}

func unquoted(s string) string {
	if len(s) < 2 {
		return s
	}
	switch inner := s[1 : len(s)-1]; {
	case s[0] == '"' && s[len(s)-1] == '"':
		return strings.ReplaceAll(strings.ReplaceAll(inner, `\\`, `\`), `\"`, `"`)
	case s[0] == '<' && s[len(s)-1] == '>':
		return inner
	}
	return s
}

// between returns the parts between lines of the boundary; the last may lack the closing one.
func between(body, boundary string) []string {
	if boundary == "" {
		return nil
	}
	var out []string
	inside, begin := false, 0
	for at := 0; at < len(body); {
		line, _ := cutLine(body[at:])
		rest, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "--"+boundary)
		rest = strings.TrimRight(rest, " \t")
		if ok && (rest == "" || rest == "--") {
			if inside {
				out = append(out, withoutEnd(body[begin:at]))
			}
			inside, begin = rest == "", at+len(line)
			if rest == "--" {
				return out
			}
		}
		at += len(line)
	}
	if inside {
		out = append(out, body[begin:])
	}
	return out
}

// withoutEnd leaves out the end of the line before a boundary, which belongs to that.
func withoutEnd(s string) string {
	for _, end := range []string{"\r\n", "\n", "\r"} {
		if cut, ok := strings.CutSuffix(s, end); ok {
			return cut
		}
	}
	return s
}

func decoded(encoding, body string) string {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "base64":
		return fromBase64(body)
	case "quoted-printable":
		if raw, err := io.ReadAll(quotedprintable.NewReader(strings.NewReader(body))); err == nil {
			return string(raw)
		}
	}
	return body
}

// fromBase64 decodes as Python's email/_encoded_words.py does (decode_b): what is no digit is left out, padding is
// added, and a text of an impossible length stays.
func fromBase64(body string) string {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	clean := strings.Map(func(r rune) rune {
		if !strings.ContainsRune(digits, r) {
			return -1
		}
		return r
	}, body)
	raw, err := base64.RawStdEncoding.DecodeString(clean)
	if err != nil {
		return body
	}
	return string(raw)
}
