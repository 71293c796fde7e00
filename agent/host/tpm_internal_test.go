package host

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/tpmdevice"
)

// TestATPMWithoutAKeyIsLeftAlone: the device is a file, which holds the command that it has received last.
func TestATPMWithoutAKeyIsLeftAlone(t *testing.T) {
	t.Parallel()
	dev := t.TempDir()
	if _, err := new(tpmKey).read(dev, time.Time{}); !errors.Is(err, tpmdevice.ErrNone) {
		t.Errorf("no device: %v", err)
	}
	var k tpmKey
	first := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		after time.Duration
		asked bool
	}{{0, true}, {tpmRest - time.Second, false}, {tpmRest, true}} {
		file := filepath.Join(dev, "tpmrm0")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := k.read(dev, first.Add(c.after)); !errors.Is(err, tpmdevice.ErrNotKept) {
			t.Errorf("after %s: %v", c.after, err)
		}
		command, err := os.ReadFile(file)
		if err != nil || (len(command) > 0) != c.asked {
			t.Errorf("after %s the TPM has received %d bytes, %v", c.after, len(command), err)
		}
	}
}
