package machinesearch

import (
	"slices"
	"strings"
	"testing"
)

func TestTexts(t *testing.T) {
	for typed, want := range map[string][]string{
		" Web-12 ":            {"web-12"},
		"web-12.example.org.": {"web-12.example.org.", "web-12.example.org", "web-12"},
		"web-12.":             {"web-12.", "web-12"},
		"10.20.0.7":           {"10.20.0.7"},
		"10.20.":              {"10.20.", "10.20"},
		"52-54-00-AA-00-12":   {"52:54:00:aa:00:12"},
		"5254.00aa.0012":      {"52:54:00:aa:00:12"},
		"52-54-00":            {"52-54-00", "52:54:00"},
		"fd00::7":             {"fd00::7"},
		"ürgs":                {"ürgs"},
	} {
		got, err := Texts(typed)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q %v, want %q", typed, got, err, want)
		}
	}
	for _, bad := range []string{"", " ", ".", "a\x00b", "a\nb", strings.Repeat("x", 201)} {
		if got, err := Texts(bad); err == nil {
			t.Errorf("%q is looked for as %q", bad, got)
		}
	}
}

func TestHitOf(t *testing.T) {
	const words = "\nMACHINE_ID\tweb-12\nSERIAL\tweb-1\nMAC\t52:54:00:aa:00:12\nLABEL\tasset=web-1\n"
	for text, want := range map[string]Hit{
		"web-12":  {"web-12", "machine_id", "web-12"},
		"web-1":   {"web-12", "serial", "web-1"},
		"eb-1":    {"web-12", "machine_id", "web-12"},
		"00:aa":   {"web-12", "mac", "52:54:00:aa:00:12"},
		"asset=w": {"web-12", "label", "asset=web-1"},
	} {
		if got, found := HitOf("web-12", words, text); !found || got != want {
			t.Errorf("%s: %v %v, want %v", text, got, found, want)
		}
	}
	if got, found := HitOf("web-12", words, "machine_id"); found {
		t.Errorf("the name of a field was found: %v", got)
	}
}

func TestOneEach(t *testing.T) {
	all := []Hit{{"a", "serial", "x"}, {"a", "mac", "x"}, {"b", "serial", "x"}, {"c", "serial", "x"}}
	got, more := OneEach(all, 2)
	if len(got) != 2 || got[0] != all[0] || got[1].MachineID != "b" || !more {
		t.Errorf("%v %v", got, more)
	}
	if got, more := OneEach(all, 3); len(got) != 3 || more {
		t.Errorf("%v %v", got, more)
	}
}
