package agent

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFaultText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "md127 (raid1) lacks 1 of 2 disks": "md127 (raid1) lacks 1 of 2 disks",
		"md0\x00is\n\x1b[2Jgone": "md0is [2Jgone", "md\xff": "md?",
	} {
		if got := faultText(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	long := faultText(strings.Repeat("ä", mostFault))
	if len(long) > mostFault+len("…") || !utf8.ValidString(long) || !strings.HasSuffix(long, "…") {
		t.Errorf("a long one has %d bytes and ends in %q", len(long), long[len(long)-6:])
	}
}
