package hwid

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Errors of MAC. The text itself is in neither.
var (
	ErrNoMAC = errors.New("no MAC address such as 52:54:00:12:34:56")
	// ErrNoCard is of an address that has the form and is no card's: all zeros, or one of a group (IEEE 802, I/G bit).
	ErrNoCard = errors.New("a MAC address that no network card has")
)

// MAC reads the 48-bit address of a network card, and returns it in lower case with colons. It takes one separator
// of ':', '-' and '.' between groups of 2, 4 or 6 hexadecimal digits, or none, in either case and with space around.
// Longer addresses, such as those of InfiniBand, are ErrNoMAC.
func MAC(text string) (string, error) {
	b, err := MACBytes(text)
	if err != nil {
		return "", err
	}
	return MACText(b), nil
}

// MACBytes is MAC in bytes.
func MACBytes(text string) ([6]byte, error) {
	b, err := sixBytes(text)
	if err == nil && (b == [6]byte{} || b[0]&1 != 0) {
		return [6]byte{}, ErrNoCard
	}
	return b, err
}

// MACText returns the one form that is used in URLs, logs and documents: lower case with colons.
func MACText(b [6]byte) string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4], b[5])
}

// SameMAC reports whether two texts are the same card's address.
func SameMAC(a, b string) bool {
	x, errX := MAC(a)
	y, errY := MAC(b)
	return errX == nil && errY == nil && x == y
}

// mostMAC is more characters than an address has in any form.
const mostMAC = 64

func sixBytes(text string) (b [6]byte, err error) {
	if len(text) > mostMAC {
		return b, ErrNoMAC
	}
	text = strings.TrimSpace(text)
	digits := text
	if at := strings.IndexAny(text, ":-."); at >= 0 {
		groups := strings.Split(text, text[at:at+1])
		for _, g := range groups {
			if len(g) != len(groups[0]) {
				return b, ErrNoMAC
			}
		}
		if n := len(groups[0]); n != 2 && n != 4 && n != 6 {
			return b, ErrNoMAC
		}
		digits = strings.Join(groups, "")
	}
	raw, err := hex.DecodeString(digits)
	if err != nil || len(raw) != len(b) {
		return b, ErrNoMAC
	}
	return [6]byte(raw), nil
}

// MACs reads a list whose members are separated by space, comma, semicolon, bar or line breaks, each once and in the
// order of the text. bad is the first member that is none.
func MACs(text string) (all []string, bad string) {
	seen := map[string]bool{}
	for _, one := range Listed(text) {
		mac, err := MAC(one)
		if err != nil {
			return nil, one
		}
		if !seen[mac] {
			seen[mac] = true
			all = append(all, mac)
		}
	}
	return all, ""
}

// Listed returns the members of a list in one cell: separated by space, comma, semicolon, bar or line breaks.
func Listed(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\r\n,;|\u00a0", r) })
}
