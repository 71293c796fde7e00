package hwid_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/internal/hwid"
)

func TestMAC(t *testing.T) {
	t.Parallel()
	const want = "52:54:00:aa:bb:0c"
	for _, text := range []string{"52:54:00:aa:bb:0c", "52-54-00-AA-BB-0C", "5254.00aa.bb0c", "525400aabb0c",
		" 52:54:00:AA:BB:0C\r\n", "5254-00AA-BB0C", "525400-aabb0c"} {
		if mac, err := hwid.MAC(text); err != nil || mac != want {
			t.Errorf("%q is %q, %v", text, mac, err)
		}
	}
	for text, want := range map[string]error{
		"": hwid.ErrNoMAC, "52:54:00:aa:bb": hwid.ErrNoMAC, "52:54-00:aa:bb:0c": hwid.ErrNoMAC, "5:54:00:aa:bb:0c": hwid.ErrNoMAC,
		"52:54:00:aa:bb:0c:01:02": hwid.ErrNoMAC, "x2:54:00:aa:bb:0c": hwid.ErrNoMAC, "::": hwid.ErrNoMAC,
		"00:00:10:29:fe:80:00:00:00:00:00:00:50:6b:4b:03:00:12:34:56": hwid.ErrNoMAC,
		"00:00:00:00:00:00": hwid.ErrNoCard, "ff:ff:ff:ff:ff:ff": hwid.ErrNoCard, "01:00:5e:00:00:01": hwid.ErrNoCard,
	} {
		if mac, err := hwid.MAC(text); !errors.Is(err, want) || mac != "" {
			t.Errorf("%q is %q, %v; want %v", text, mac, err, want)
		}
	}
	all, bad := hwid.MACs("52:54:00:00:00:05\n525400000006, 52-54-00-00-00-05|5254.0000.0007;")
	if bad != "" || strings.Join(all, " ") != "52:54:00:00:00:05 52:54:00:00:00:06 52:54:00:00:00:07" {
		t.Errorf("list: %q, %q", all, bad)
	}
}

func TestUnsetTexts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", " ", "To be filled by O.E.M", "To Be Filled By O.E.M.\n", "Chassis Serial Number", "None",
		"System Serial Number", "Default string", "Not Specified", "N/A", "0", "00000000", "0x00000000", "........", "xxxxxxxxxxx",
		"O.E.M.", "Unknow", "empty", "[Empty]", "0123456789", "1234567890123456", "System manufacturer", "AssetTagNum0", "SerNum3",
		"Base Board Serial Number", "NULL", "(none)", "No Asset Tag", "\x00"} {
		if got := hwid.Text(text); got != "" {
			t.Errorf("%q is kept as %q", text, got)
		}
	}
	for text, want := range map[string]string{" ASSET-ÄÖ  ": "ASSET-ÄÖ", ".1234567.": ".1234567.", "System x3650 M5": "System x3650 M5",
		"7X06CTO1WW": "7X06CTO1WW", "OEM Server": "OEM Server", "Nottingham": "Nottingham", "10": "10", "X10": "X10",
		"Chassis A7": "Chassis A7", "UnknownWorlds": "UnknownWorlds"} {
		if got := hwid.Text(text); got != want {
			t.Errorf("%q is %q", text, got)
		}
	}
}

func TestUUID(t *testing.T) {
	t.Parallel()
	const want = "4c4c4544-0031-3510-8052-b7c04f4e4b32"
	for _, text := range []string{want, strings.ToUpper(want), "{" + want + "}", "urn:uuid:" + want,
		strings.ReplaceAll(want, "-", ""), want + "\n"} {
		if got := hwid.UUID(text); got != want {
			t.Errorf("%q is %q", text, got)
		}
	}
	for _, text := range []string{"", "00000000-0000-0000-0000-000000000000", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
		"03000200-0400-0500-0006-000700080009", "00020003-0004-0005-0006-000700080009", "Not Settable", "Not Present"} {
		if got := hwid.UUID(text); got != "" {
			t.Errorf("%q is kept as %q", text, got)
		}
	}
	if got := hwid.UUID("4C4C-SHORT"); got != "4c4c-short" {
		t.Errorf("a text of its own is %q", got)
	}
	if same, known := hwid.SameUUID(strings.ToUpper(want), strings.ReplaceAll(want, "-", "")); !same || !known {
		t.Error("two spellings differ")
	}
	if _, known := hwid.SameUUID(want, "ffffffff-ffff-ffff-ffff-ffffffffffff"); known {
		t.Error("a factory's is compared")
	}
}

// FuzzIDs: what a reader returns is read as the same again, and nothing is longer than it was.
func FuzzIDs(f *testing.F) {
	for _, s := range []string{"52:54:00:aa:bb:0c", "To be filled by O.E.M.", "{4c4c4544-0031-3510-8052-b7c04f4e4b32}", "\x00 .\u00a0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if mac, err := hwid.MAC(s); err == nil {
			if again, err := hwid.MAC(mac); err != nil || again != mac || len(mac) != 17 {
				t.Errorf("%q is %q, then %q, %v", s, mac, again, err)
			}
		}
		if text := hwid.Text(s); hwid.Text(text) != text || len(text) > len(s) {
			t.Errorf("%q is %q, then %q", s, text, hwid.Text(text))
		}
		if id := hwid.UUID(s); hwid.UUID(id) != id {
			t.Errorf("%q is %q, then %q", s, id, hwid.UUID(id))
		}
	})
}
