package pid1

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// inputEvent is struct input_event of linux/input.h on a 64-bit machine.
type inputEvent struct {
	Seconds, Microseconds int64
	Type, Code            uint16
	Value                 int32
}

// Values of linux/input-event-codes.h.
const (
	evKey    = 1
	keyPower = 116
)

const buttonTimeout = 5 * time.Second

// waitForPowerButton returns nil when the button is pressed. That is how a hypervisor or a BMC asks for an
// orderly end.
func waitForPowerButton(ctx context.Context) error {
	device := ""
	found := poll(ctx, buttonTimeout, func() bool {
		device = findInput("/sys/class/input", "/dev/input", "Power Button")
		return device != ""
	})
	if !found {
		return errors.New("no input device is a power button")
	}
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	// Opened for reading only: closing it loses nothing.
	defer f.Close()
	return readUntilPressed(f)
}

func findInput(sysDir, devDir, name string) string {
	// The pattern is constant and well formed, which is all that Glob complains about.
	files, _ := filepath.Glob(filepath.Join(sysDir, "event*", "device", "name"))
	for _, file := range files {
		got, err := os.ReadFile(file)
		if err == nil && strings.TrimSpace(string(got)) == name {
			return filepath.Join(devDir, filepath.Base(filepath.Dir(filepath.Dir(file))))
		}
	}
	return ""
}

func readUntilPressed(r io.Reader) error {
	for {
		var ev inputEvent
		if err := binary.Read(r, binary.NativeEndian, &ev); err != nil {
			return err
		}
		if ev.Type == evKey && ev.Code == keyPower && ev.Value == 1 {
			return nil
		}
	}
}
