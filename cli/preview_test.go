package cli

import (
	"strings"
	"testing"
)

// TestADryRunNamesItsCommand: with machines and flags, as a shell reads them, so that it can be pasted.
func TestADryRunNamesItsCommand(t *testing.T) {
	for line, want := range map[string]string{
		"reimage machine-1 --image ubuntu-2204 --dry-run": "To begin: ingot reimage machine-1 --image=ubuntu-2204",
		"reimage machine-[1-3] --image ubuntu-2204 --dry-run --max-in-flight 2": "To begin: ingot reimage 'machine-[1-3]' " +
			"--image=ubuntu-2204 --max-in-flight=2",
		"provision machine-1 machine-2 --image ubuntu-2204 --dry-run": "To begin: ingot provision machine-1 machine-2 " +
			"--image=ubuntu-2204",
	} {
		got := fleet().run(t, strings.Fields(line)...)
		var begin string
		for text := range strings.Lines(got.out) {
			if strings.HasPrefix(text, "To begin:") {
				begin = strings.TrimSpace(text)
			}
		}
		if got.code != 0 || begin != want {
			t.Errorf("%s: exit code %d, %q; want %q", line, got.code, begin, want)
		}
	}
}

// TestADryRunThatIsRefusedExitsLikeTheCall: with the code of the call on the one machine, or of a rollout of none.
func TestADryRunThatIsRefusedExitsLikeTheCall(t *testing.T) {
	for line, want := range map[string]int{
		"reimage machine-1 --image no-such --dry-run":                    3,
		"reimage machine-1 machine-2 --image no-such --dry-run":          4,
		"provision machine-1 --image no-such --dry-run":                  4,
		"rollout preview --type REPAVE --filter a=b --image no-such":     4,
		"reimage machine-1 --image no-such --dry-run --output json":      3,
		"rollout preview --type REPAVE --filter a=b --image ubuntu-2204": 0,
	} {
		got := fleet().run(t, strings.Fields(line)...)
		if got.code != want {
			t.Errorf("%s: exit code %d, want %d: %+v", line, got.code, want, got)
		}
		if strings.Contains(got.out, "To begin:") != (want == 0) {
			t.Errorf("%s: %s", line, got.out)
		}
	}
}
