package machine

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNaturalKey(t *testing.T) {
	const zeros = "00000000000000000000"
	for name, want := range map[string]string{
		"": "", "r": "r", "r2": "r" + zeros[:19] + "2", "7x007": zeros[:19] + "7x" + zeros[:19] + "7", "0": zeros,
		"1234567890123456789012": "1234567890123456789012", "m.é9-": "m.é" + zeros[:19] + "9-",
	} {
		if got := naturalKey(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	names := strings.Fields("r10 r9 r2-b10 r2-b9 r2")
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(naturalKey(a), naturalKey(b)) })
	if got := strings.Join(names, " "); got != "r2 r2-b9 r2-b10 r9 r10" {
		t.Errorf("sorted: %s", got)
	}
}

// TestNaturalKeysAreOrdered: keys of the same name with two numbers are in the order of the numbers.
func TestNaturalKeysAreOrdered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.IntRange(0, 1e15).Draw(t, "a"), rapid.IntRange(0, 1e15).Draw(t, "b")
		before := rapid.StringMatching(`[a-z.-]{0,5}`).Draw(t, "name")
		key := func(n int) string { return naturalKey(before + strings.Repeat("0", n%3) + strconv.Itoa(n)) }
		if (a < b) != (key(a) < key(b)) {
			t.Fatalf("%d and %d: %q, %q", a, b, key(a), key(b))
		}
	})
}
