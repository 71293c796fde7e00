package gctune

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestOnlyCodeOfTheProgramIsGivenBack(t *testing.T) {
	t.Parallel()
	const maps = `00400000-00efe000 r-xp 00000000 fe:00 131 /opt/in got/agent
00efe000-01a61000 r--p 00afe000 fe:00 131 /opt/in got/agent
01a61000-01af8000 rw-p 01661000 fe:00 131 /opt/in got/agent
01af8000-03b5a000 rw-p 00000000 00:00 0
7f5c8bca0000-7f5c8bd80000 r-xp 00000000 fe:00 7 /usr/lib/other.so
7f5cd2bfe000-7f5cd2c00000 r-xp 00000000 00:00 0 [vdso]
`
	got, err := codeOf(strings.NewReader(maps), "/opt/in got/agent")
	if want := []mapping{{0x400000, 0xefe000}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %x, %v", got, err)
	}
}

// The code of this test comes back when it is needed, and less of it is in memory before.
func TestCodeThatIsGivenBackStillRuns(t *testing.T) {
	before := ofFile(t)
	if err := giveBackProgram(); err != nil {
		t.Fatal(err)
	}
	if after := ofFile(t); after >= before {
		t.Errorf("%d KiB of files before, %d after", before, after)
	}
}

// ofFile is how much of files this process has in memory, in KiB (proc_pid_status(5)).
func ofFile(t *testing.T) (kib int) {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(raw, []byte("RssFile:"))
	if _, err := fmt.Sscan(string(rest), &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}
