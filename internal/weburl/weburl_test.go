package weburl_test

import (
	"errors"
	"testing"

	"github.com/ingot-metal/ingot/internal/weburl"
)

func TestParse(t *testing.T) {
	for s, want := range map[string]error{
		"https://example.org":            nil,
		"https://example.org:1/a?b":      nil,
		"http://[2001:db8::1]:65535":     nil,
		"https://[2001:db8::1]/":         nil,
		"https://example.org:0":          weburl.ErrPort,
		"https://example.org:65536/a":    weburl.ErrPort,
		"https://[2001:db8::1]:99999":    weburl.ErrPort,
		"https://example.org:":           weburl.ErrPort,
		"https://:443/a":                 weburl.ErrHost,
		"https:///a":                     weburl.ErrHost,
		"":                               weburl.ErrHost,
		"mailto:a@example.org":           weburl.ErrHost,
		"https://h:99999999999999999999": weburl.ErrPort,
	} {
		if _, err := weburl.Parse(s); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", s, err, want)
		}
	}
	for _, s := range []string{"https://a b", "https://example.org:port", "https://[::1", "%"} {
		if _, err := weburl.Parse(s); err == nil {
			t.Errorf("%q was parsed", s)
		}
	}
}
