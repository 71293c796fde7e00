package bmc

import (
	"net"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzEndpoint: an accepted endpoint names one host, and is the same BMC when it is written in full.
func FuzzEndpoint(f *testing.F) {
	for _, s := range []string{"bmc-1", "192.0.2.7:8000", "2001:db8::7", "redfish://[::1]:9", "ipmi://x:1/",
		"redfish+http://x", "a@b", "[::1", "x:y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := ParseEndpoint(s)
		if err != nil {
			return
		}
		host, _, err := net.SplitHostPort(e.rmcp())
		if err != nil || host != e.Host || e.Host == "" || strings.ContainsAny(e.Host, "@/?#[] \n") ||
			!strings.HasPrefix(e.url(), "http") {
			t.Errorf("%q: %+v, %s, %s, %v", s, e, e.rmcp(), e.url(), err)
		}
		long := e.rmcp()
		if again, err := ParseEndpoint(long); err != nil || e.Port != "" && again.Key() != e.Key() {
			t.Errorf("%q is %s, and %q is %s, %v", s, e.Key(), long, again.Key(), err)
		}
	})
}

// FuzzScrubber: however it is cut, the same lines come out; they are text, and no key is in them.
func FuzzScrubber(f *testing.F) {
	f.Add([]byte("one\r\n\x1b[31mred\x1b[0m ingot1.abc\n"), 3)
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\nMHcCAQ\n-----END PRIVATE KEY-----\nx"), 1)
	f.Add([]byte("a -----BEGIN PRIVATE KEY-----MHc\x1b[1;1HAQ-----END PRIVATE KEY----- b\n"), 5)
	f.Add([]byte("password: x token=y authorization: Bearer z\n\xff\xfe"), 2)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		run := func(size int) []string {
			var out []string
			s := NewRedactor(func(line string) { out = append(out, line) })
			for rest := b; len(rest) > 0; {
				n := min(size, len(rest))
				if _, err := s.Write(rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			s.Flush()
			return out
		}
		whole, parts := run(len(b)+1), run(max(1, cut%97))
		if strings.Join(whole, "\n") != strings.Join(parts, "\n") {
			t.Errorf("%q by %d: %q, and %q", b, cut, whole, parts)
		}
		for _, line := range whole {
			if !utf8.ValidString(line) ||
				strings.ContainsFunc(line, func(r rune) bool { return unicode.IsControl(r) && r != '\t' }) {
				t.Errorf("line %q", line)
			}
			if keyBegin.MatchString(line) {
				t.Errorf("a key begins in %q", line)
			}
		}
	})
}
