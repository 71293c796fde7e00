package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// ErrNotYetValid and ErrExpired are wrapped by CheckTimes.
var (
	ErrNotYetValid = errors.New("certificate is not valid yet")
	ErrExpired     = errors.New("certificate has expired")
)

// EffectiveNow returns the latest of the candidates: the local clock and every time that is known to have passed. Such
// times are the build of this program, the last controller time seen, and the issue of a token. A clock that stands in
// 1970 or runs hours behind then breaks no check of a certificate.
func EffectiveNow(candidates ...time.Time) time.Time {
	var latest time.Time
	for _, c := range candidates {
		if c.After(latest) {
			latest = c
		}
	}
	return latest
}

// CheckTimes checks the validity period, both ends included (RFC 5280, 4.1.2.5), at the time given.
func CheckTimes(cert *x509.Certificate, now time.Time) error {
	if now.Before(cert.NotBefore) {
		return fmt.Errorf("%w: from %s, now is %s", ErrNotYetValid, stamp(cert.NotBefore), stamp(now))
	}
	if now.After(cert.NotAfter) {
		return fmt.Errorf("%w: at %s, now is %s", ErrExpired, stamp(cert.NotAfter), stamp(now))
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
