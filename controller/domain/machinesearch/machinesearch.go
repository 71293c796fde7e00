// Package machinesearch decides what a person looks for by a piece of text, and what of a machine was found by it.
package machinesearch

import (
	"regexp"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/hwid"
)

// maxText bounds the text of a search, in bytes.
const maxText = 200

// Hit is a machine, the name of a field and the field's value that was found, in small letters.
type Hit struct{ MachineID, Field, Value string }

// partOfMAC is the beginning of a MAC address as some programs write it, with hyphens.
var partOfMAC = regexp.MustCompile(`^[0-9a-f]{2}(-[0-9a-f]{2}){1,5}-?$`)

// partOfIP is the beginning of an IPv4 address, which is no host name.
var partOfIP = regexp.MustCompile(`^[0-9.]+$`)

// Texts returns the forms of a text, in the order of the searches: the first with a hit is the answer. A text that is
// empty, too long or has control characters is INVALID_FIELD.
func Texts(typed string) ([]string, *failure.Error) {
	text := strings.ToLower(strings.TrimSpace(typed))
	control := func(r rune) bool { return r < ' ' }
	if strings.Trim(text, ".") == "" || len(text) > maxText || strings.ContainsFunc(text, control) {
		return nil, failure.Invalid("INVALID_FIELD", "text is a piece of a name, 1 to %d bytes", maxText).
			WithField("text", "1 to 200 bytes without control characters")
	}
	if mac, err := hwid.MAC(text); err == nil {
		return []string{mac}, nil
	}
	texts := []string{text}
	if host, ok := strings.CutSuffix(text, "."); ok { // a host name may end at the root
		texts = append(texts, host)
	}
	if partOfMAC.MatchString(text) {
		texts = append(texts, strings.ReplaceAll(text, "-", ":"))
	}
	if host, _, ok := strings.Cut(
		text,
		".",
	); ok && host != "" && host != texts[len(texts)-1] &&
		!partOfIP.MatchString(text) {
		texts = append(texts, host)
	}
	return texts, nil
}

// order is which of several fields is shown: what a person would have typed first.
var order = []string{
	"machine_id",
	"hostname",
	"external_id",
	"serial",
	"asset_tag",
	"mac",
	"address",
	"bmc",
	"ssh",
	"uuid",
	"disk",
	"label",
}

// HitOf returns what of a machine was found: the exact value, else one that begins so, else one that has it. words are
// lines of a kind in capitals, a tab and a value. It reports false where only a kind was met.
func HitOf(machineID, words, text string) (Hit, bool) {
	best, found := Hit{MachineID: machineID}, false
	least := [2]int{3, 0}
	for line := range strings.SplitSeq(words, "\n") {
		kind, value, _ := strings.Cut(line, "\t")
		if !strings.Contains(value, text) {
			continue
		}
		field := strings.ToLower(kind)
		rank := [2]int{2, slices.Index(order, field)}
		switch {
		case value == text:
			rank[0] = 0
		case strings.HasPrefix(value, text):
			rank[0] = 1
		}
		if !found || slices.Compare(rank[:], least[:]) < 0 {
			best.Field, best.Value, least, found = field, value, rank, true
		}
	}
	return best, found
}

// OneEach returns one hit a machine, in the order in which they came, at most limit of them, and whether there are
// more.
func OneEach(hits []Hit, limit int) (out []Hit, more bool) {
	seen := map[string]bool{}
	for _, h := range hits {
		if seen[h.MachineID] {
			continue
		}
		if len(out) == limit {
			return out, true
		}
		seen[h.MachineID] = true
		out = append(out, h)
	}
	return out, false
}
