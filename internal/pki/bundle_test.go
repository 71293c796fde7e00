package pki_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/pki"
)

func bundle() pki.Bundle {
	return pki.Bundle{
		TokenID:   ids.New(ids.Token),
		Secret:    ids.Secret(32),
		CAHash:    sha256.Sum256([]byte("root")),
		Addresses: []string{"controller.example:50053", "[2001:db8::1]:50053"},
		IssuedAt:  time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
}

func encode(t *testing.T, b pki.Bundle) string {
	t.Helper()
	s, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBundleRoundTrip(t *testing.T) {
	t.Parallel()
	b := bundle()
	s := encode(t, b)
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" {
		t.Fatalf("%q needs quoting in a shell", s)
	}
	wrapped := " " + s[:40] + "\r\n" + s[40:] + "\n"
	for _, in := range []string{s, wrapped} {
		got, err := pki.ParseBundle(in)
		if err != nil || !reflect.DeepEqual(got, b) {
			t.Fatalf("got %v, %v", got, err)
		}
	}
	b.IssuedAt = time.Time{}
	if got, err := pki.ParseBundle(encode(t, b)); err != nil || !got.IssuedAt.IsZero() {
		t.Fatalf("without a time: %v, %v", got.IssuedAt, err)
	}
}

func TestBundleCorruption(t *testing.T) {
	t.Parallel()
	b := bundle()
	s := encode(t, b)
	for i := range len(s) {
		for _, bad := range []string{
			s[:i],                    // cut short
			s[:i] + s[i+1:],          // a character lost
			s[:i] + "A" + s[i+1:],    // changed
			s[:i] + "_" + s[i+1:],    // changed
			s[:i] + "!" + s[i+1:],    // not base64
			s[:i] + s[i:i+1] + s[i:], // doubled
			s[:i] + s + s[i:],        // pasted into itself
			strings.ToUpper(s[:i+1]) + s[i+1:],
		} {
			if bad == s {
				continue
			}
			_, err := pki.ParseBundle(bad)
			if !errors.Is(err, pki.ErrBadBundle) {
				t.Fatalf("%q: %v", bad, err)
			}
			if strings.Contains(err.Error(), b.Secret) {
				t.Fatalf("error shows the secret: %v", err)
			}
		}
	}
}

func TestIncompleteBundleIsNotEncoded(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*pki.Bundle){
		"token id":   func(b *pki.Bundle) { b.TokenID = "t-1" },
		"secret":     func(b *pki.Bundle) { b.Secret = "" },
		"CA hash":    func(b *pki.Bundle) { b.CAHash = [sha256.Size]byte{} },
		"no address": func(b *pki.Bundle) { b.Addresses = nil },
		"no port":    func(b *pki.Bundle) { b.Addresses = []string{"controller.example"} },
		"empty host": func(b *pki.Bundle) { b.Addresses = []string{":50053"} },
	} {
		b := bundle()
		spoil(&b)
		if s, err := b.Encode(); err == nil {
			t.Errorf("%s: encoded as %q", name, s)
		}
	}
}

func TestBundleDoesNotPrintItsSecret(t *testing.T) {
	t.Parallel()
	b := bundle()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if s := fmt.Sprintf(verb, b); strings.Contains(s, b.Secret) || !strings.Contains(s, b.TokenID) {
			t.Errorf("%s prints %q", verb, s)
		}
	}
}
