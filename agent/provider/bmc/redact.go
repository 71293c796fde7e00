package bmc

import (
	"bytes"
	"regexp"
	"strings"

	"github.com/ingot-metal/ingot/internal/obs/redact"
	"github.com/ingot-metal/ingot/internal/safetext"
)

// maxLine is the longest line that is kept together.
const maxLine = 4096

// Redactor is an io.Writer that passes the output of a serial port on line by line, as plain text without terminal
// controls and without secrets. Secrets are bootstrap and bearer tokens, tokens in boot URLs, and PEM private keys over
// any number of lines. So are values of authorization headers, of passwords and of anything called secret or token.
// Other forms are not recognized. It is not safe for concurrent use.
type Redactor struct {
	emit  func(line string)
	buf   []byte
	inKey bool
}

// NewRedactor returns a Redactor that calls emit with each line.
func NewRedactor(emit func(line string)) *Redactor { return &Redactor{emit: emit} }

// Write never fails. A line is held back until it has ended.
func (s *Redactor) Write(p []byte) (int, error) {
	seen := len(s.buf) // in which no line ends
	s.buf = append(s.buf, p...)
	for {
		i := bytes.IndexAny(s.buf[seen:], "\n\r")
		if i >= 0 {
			i += seen
		}
		switch {
		case i < 0 && len(s.buf) <= maxLine:
			return len(p), nil
		case i < 0 || i > maxLine:
			s.line(string(s.buf[:maxLine]))
			s.buf = s.buf[maxLine:]
		default:
			s.line(string(s.buf[:i]))
			s.buf = s.buf[i+1:]
		}
		seen = 0
	}
}

// Flush emits the last line, which has no end yet.
func (s *Redactor) Flush() {
	if len(s.buf) > 0 {
		s.line(string(s.buf))
		s.buf = nil
	}
}

var (
	// Cursor movement stands where a line would end (ECMA-48: CUP, HVP, and ED).
	movement = regexp.MustCompile(`\x1b\[[0-9;]*[HfJ]`)
	// The rest of ECMA-48, 5.4: control sequences, and shorter escapes.
	escapes = regexp.MustCompile(`\x1b\[[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]`)
)

func (s *Redactor) line(raw string) {
	for part := range strings.SplitSeq(movement.ReplaceAllString(raw, "\n"), "\n") {
		text := strings.TrimRight(safetext.Clean(escapes.ReplaceAllString(part, "")), " ")
		if text = s.redact(text); text != "" {
			s.emit(text)
		}
	}
}

var (
	keyBegin = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----`)
	keyEnd   = regexp.MustCompile(`-----END [A-Z0-9 ]*PRIVATE KEY-----`)
	named    = regexp.MustCompile(
		`(?i)((?:[a-z0-9_.-]*)(?:passw(?:or)?d|passphrase|secret|token|api[-_]?key)["']?\s*[:=]\s*["']?)[^\s"'&,;]+`)
	bootURL = regexp.MustCompile(`(/boot/)[A-Za-z0-9_-]{16,}`)
)

// redact keeps in mind whether it is inside of a key. What stands before and after the key on its first and last line
// is kept.
func (s *Redactor) redact(text string) string {
	head, tail := "", text
	if s.inKey {
		end := keyEnd.FindStringIndex(tail)
		if end == nil {
			return ""
		}
		s.inKey, tail = false, tail[end[1]:]
	}
	for {
		begin := keyBegin.FindStringIndex(tail)
		if begin == nil {
			break
		}
		head += tail[:begin[0]] + redact.Mask
		rest := tail[begin[1]:]
		end := keyEnd.FindStringIndex(rest)
		if end == nil {
			s.inKey, tail = true, ""
			break
		}
		tail = rest[end[1]:]
	}
	text = redact.String(head + tail)
	text = named.ReplaceAllString(text, "${1}"+redact.Mask)
	return bootURL.ReplaceAllString(text, "${1}"+redact.Mask)
}
