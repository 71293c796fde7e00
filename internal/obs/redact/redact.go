// Package redact masks what must never be written down: bearer tokens, bootstrap tokens, authorization headers,
// passwords in URLs and private keys.
package redact

import (
	"regexp"
	"strings"
)

// Mask stands where a secret was.
const Mask = "[redacted]"

// secret holds the forms of a secret. Where a pattern has a first group, that group is kept.
var secret = []struct {
	pattern *regexp.Regexp
	with    string
}{
	// Bearer tokens of Ingot ("ingotb_…") and bootstrap tokens ("ingot1.…"), wherever they stand.
	{regexp.MustCompile(`ingotb_[A-Za-z0-9_-]+`), Mask},
	{regexp.MustCompile(`ingot1\.[A-Za-z0-9_=+/-]+`), Mask},
	// Secrets of webhooks, in the form of Standard Webhooks.
	{regexp.MustCompile(`whsec_[A-Za-z0-9_=+/-]+`), Mask},
	// "Bearer x" in a message, and the value after the word authorization in any dump: "authorization: x",
	// map[authorization:[Bearer x]], {"authorization":["Bearer x"]}.
	{regexp.MustCompile(`(?i)\b(bearer[ \t]+)[^\s"'\]\[{},;]+`), "${1}" + Mask},
	{
		regexp.MustCompile(
			`(?i)(authorization["']?\s*[:=]\s*[\["']*)(?:(?:basic|digest|bearer|negotiate)\s+)?[^\s"'\]\[{},;]+`), "${1}" +
			Mask},
	// scheme://user:password@host (RFC 3986, section 3.2.1) and keyword=value connection strings (libpq).
	{regexp.MustCompile(`([a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s@]+(@)`), "${1}" + Mask + "${2}"},
	{regexp.MustCompile(`(?i)\b(password\s*=\s*)('[^']*'|[^\s&]+)`), "${1}" + Mask},
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`), Mask},
}

// hints are what a text must contain for a pattern to match, in lower case; they spare most texts the patterns.
var hints = []string{"ingotb_", "ingot1.", "whsec_", "bearer", "authorization", "://", "password", "private key-----"}

// String returns s with every secret masked.
func String(s string) string {
	if !suspicious(s) {
		return s
	}
	for _, p := range secret {
		s = p.pattern.ReplaceAllString(s, p.with)
	}
	return s
}

func suspicious(s string) bool {
	lower := strings.ToLower(s)
	for _, h := range hints {
		if strings.Contains(lower, h) {
			return true
		}
	}
	return false
}

// Key reports whether the value of an attribute with this name is a secret whatever it looks like.
func Key(name string) bool {
	switch strings.ToLower(name) {
	case "authorization", "proxy-authorization", "cookie", "set-cookie", "token", "bearer", "bundle", "secret",
		"password", "passwd", "private_key", "bootstrap_token", "bearer_token":
		return true
	}
	return false
}

// Bytes is String for a line of log: it returns p itself where there is nothing to mask.
func Bytes(p []byte) []byte {
	s := string(p)
	if masked := String(s); masked != s {
		return []byte(masked)
	}
	return p
}
