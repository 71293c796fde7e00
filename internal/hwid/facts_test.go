package hwid_test

import (
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/internal/hwid"
)

// whole is a machine of which everything is known.
func whole() hwid.Facts {
	return hwid.Facts{
		UUID:    "4c4c4544-0031-3510-8052-b7c04f4e4b32",
		Serial:  "SN-1",
		Board:   "B-1",
		TPM:     "aa",
		Chassis: "C-1",
		MACs:    []string{"00:25:90:00:00:01", "00:25:90:00:00:02"},
		V1:      "v1-of-1",
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	with := func(f hwid.Facts, change func(*hwid.Facts)) hwid.Facts { change(&f); return f }
	weak := with(whole(), func(f *hwid.Facts) { f.UUID, f.Serial, f.Board, f.TPM = "", "", "", "" })
	for name, c := range map[string]struct {
		known, now hwid.Facts
		want       hwid.Outcome
		notes      string
	}{
		"the same":         {whole(), whole(), hwid.Same, ""},
		"nothing known":    {hwid.Facts{}, whole(), hwid.Same, ""},
		"nothing read":     {whole(), hwid.Facts{}, hwid.Remarked, "no hardware was read"},
		"another spelling": {whole(), with(whole(), func(f *hwid.Facts) { f.UUID, f.Serial = strings.ToUpper(f.UUID), "sn-1" }), hwid.Same, ""},
		"the other byte order": {whole(), with(whole(), func(f *hwid.Facts) { f.UUID = "44454c4c-3100-1035-8052-b7c04f4e4b32" }),
			hwid.Same, ""},
		"cards swapped": {whole(), with(whole(), func(f *hwid.Facts) { f.MACs = []string{"00:25:90:00:00:09"} }), hwid.Remarked,
			"network card 00:25:90:00:00:01 is gone; network card 00:25:90:00:00:02 is gone; network card 00:25:90:00:00:09 is new"},
		"late cards":    {whole(), with(whole(), func(f *hwid.Facts) { f.MACs = nil }), hwid.Remarked, "no network card was found"},
		"a blade moved": {whole(), with(whole(), func(f *hwid.Facts) { f.Chassis = "C-2" }), hwid.Remarked, "the chassis' serial number is C-2, and was C-1"},
		"unread": {whole(), with(weak, func(f *hwid.Facts) { f.TPM = "aa" }), hwid.Remarked, "the system's UUID was not read; " +
			"the system's serial number was not read; the mainboard's serial number was not read"},
		"another board": {whole(), with(whole(), func(f *hwid.Facts) { f.Board = "B-2" }), hwid.Contested,
			"the mainboard's serial number is B-2, and was B-1"},
		"another TPM":         {whole(), with(whole(), func(f *hwid.Facts) { f.TPM = "bb" }), hwid.Contested, "the TPM's key is bb, and was aa"},
		"only cards, one new": {weak, with(weak, func(f *hwid.Facts) { f.MACs = []string{"00:25:90:00:00:01"} }), hwid.Remarked, "network card 00:25:90:00:00:02 is gone"},
		"only cards, none the same": {weak, with(weak, func(f *hwid.Facts) { f.MACs = []string{"00:25:90:00:00:09"} }), hwid.Contested,
			"network card 00:25:90:00:00:01 is gone; network card 00:25:90:00:00:02 is gone; network card 00:25:90:00:00:09 is new"},
		"registered otherwise": {hwid.Facts{Serial: "SN-9", Registered: true}, whole(), hwid.Refused,
			"the system's serial number is SN-1, and SN-9 is registered"},
		"registered by another label": {hwid.Facts{Serial: "c-1", Registered: true}, whole(), hwid.Same, ""},
		"registered by the board's, and the system's is unset": {hwid.Facts{Serial: "b-1", Registered: true},
			with(whole(), func(f *hwid.Facts) { f.Serial = "" }), hwid.Same, ""},
		"an upgraded agent":           {hwid.Facts{V1: "v1-of-1"}, whole(), hwid.Same, ""},
		"upgraded, counted otherwise": {hwid.Facts{V1: "other"}, whole(), hwid.Remarked, "the hardware was counted by another version of the agent"},
		"a rolled back agent":         {whole(), hwid.Facts{V1: "v1-of-1"}, hwid.Same, ""},
		"two older agents":            {hwid.Facts{V1: "a"}, hwid.Facts{V1: "b"}, hwid.Contested, "the hardware fingerprint is another"},
	} {
		v := hwid.Judge(c.known, c.now)
		if v.Outcome != c.want || v.String() != c.notes {
			t.Errorf("%s: %d, %q; want %d, %q", name, v.Outcome, v, c.want, c.notes)
		}
	}
}

func TestFingerprintsAreReadAgain(t *testing.T) {
	t.Parallel()
	text := whole().Fingerprint()
	if again := hwid.ParseFingerprint(text); again.Fingerprint() != text || !hwid.Judge(whole(), again).Confirmed {
		t.Errorf("%s is read as %+v", text, again)
	}
	for _, text := range []string{"", "abcd", "2:", "2:{", "2:[]", "2:{\"uuid\":1}", "2:" + strings.Repeat("x", 9000)} {
		if f := hwid.ParseFingerprint(text); f.V1 != text || f.UUID != "" {
			t.Errorf("%.20q is read as %+v", text, f)
		}
	}
	if text := (hwid.Facts{}).Fingerprint(); text != "" {
		t.Errorf("of nothing: %q", text)
	}
}

// TestKnown: what was not read once is kept, an older agent's is accepted once and replaced, other hardware replaces
// all.
func TestKnown(t *testing.T) {
	t.Parallel()
	first := whole().Fingerprint()
	unread := hwid.Facts{Chassis: "C-1", Unread: []string{"the system's UUID"}}.Fingerprint()
	kept := hwid.ParseFingerprint(hwid.Known(first, unread))
	if kept.UUID != whole().UUID || len(kept.MACs) != 2 || len(kept.Unread) != 1 {
		t.Errorf("kept: %+v", kept)
	}
	other := hwid.Facts{UUID: "4c4c4544-0031-3510-8052-b7c04f4e4b33"}.Fingerprint()
	for want, got := range map[string]string{first: hwid.Known("older", first), "older": hwid.Known(first, "older"),
		other: hwid.Known(first, other)} {
		if got != want {
			t.Errorf("known by %s, want %s", got, want)
		}
	}
	if got := hwid.Known(first, ""); got != first {
		t.Errorf("an agent that shows nothing is known by %q", got)
	}
}

func TestLocalMAC(t *testing.T) {
	t.Parallel()
	for mac, want := range map[string]bool{"52:54:00:00:00:01": true, "02:00:00:00:00:01": true, "00:25:90:00:00:01": false,
		"": false} {
		if hwid.LocalMAC(mac) != want {
			t.Errorf("%s: %t", mac, !want)
		}
	}
}
