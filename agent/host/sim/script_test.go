package sim

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseScript(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Script{
		"":             nil,
		" , ":          nil,
		"reboot:never": {{Kind: KindReboot, Mode: Never}},
		"reboot:fail-before@1, reboot:never@2+": {
			{Kind: KindReboot, Mode: FailBefore, Nth: 1}, {Kind: KindReboot, Mode: Never, Nth: 2, Onwards: true},
		},
		"m-3/repave:late=1m2s@4": {{Machine: "m-3", Kind: KindRepave, Mode: Late, After: 62 * time.Second, Nth: 4}},
		"a/b/power-off:lie":      {{Machine: "a/b", Kind: KindPowerOff, Mode: Lie}},
		"netboot:crash-after":    {{Kind: KindBootNext, Mode: CrashAfter}},
		"reconfig:fail-after@2": {{Kind: KindHostname, Mode: FailAfter, Nth: 2},
			{Kind: KindFirewall, Mode: FailAfter, Nth: 2}},
	} {
		got, err := ParseScript(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for text, says := range map[string]string{
		"reboot":            "want kind:mode",
		"dance:never":       `unknown kind "dance"`,
		"reboot:twice":      `unknown mode "twice"`,
		"reboot:":           `unknown mode ""`,
		"reboot:late":       "late takes a duration",
		"reboot:never=2s":   "no other mode does",
		"reboot:late=2":     "parse duration",
		"reboot:late=-2s":   "not positive",
		"reboot:never@0":    "not a count",
		"reboot:never@x":    "not a count",
		"reboot:never@":     "not a count",
		"reboot:never@2++":  "not a count",
		"reboot:never,boot": `read fault "boot"`,
	} {
		if _, err := ParseScript(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q in it", text, err, says)
		}
	}
}

func TestScriptFind(t *testing.T) {
	t.Parallel()
	s, err := ParseScript("m-2/reboot:lie, reboot:fail-before@1, reboot:never@3+")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		machine string
		kind    Kind
		nth     int
		want    Mode
	}{
		{"m-2", KindReboot, 1, Lie}, {"m-2", KindReboot, 9, Lie},
		{"m-1", KindReboot, 1, FailBefore}, {"m-1", KindReboot, 2, ""}, {"m-1", KindReboot, 3, Never},
		{"m-1", KindReboot, 7, Never},
		{"m-1", KindRepave, 1, ""},
	} {
		if got := s.find(tc.machine, tc.kind, tc.nth).Mode; got != tc.want {
			t.Errorf("%s %s %d: %q, want %q", tc.machine, tc.kind, tc.nth, got, tc.want)
		}
	}
}
