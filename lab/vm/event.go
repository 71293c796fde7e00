package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Event is something that happened to the machine
// (https://www.qemu.org/docs/master/interop/qemu-qmp-ref.html).
type Event struct {
	Name      string          `json:"event"` // such as RESET, SHUTDOWN, POWERDOWN
	Data      json.RawMessage `json:"data,omitempty"`
	Timestamp struct {
		Seconds      int64 `json:"seconds"`
		Microseconds int64 `json:"microseconds"`
	} `json:"timestamp"`
}

// ByGuest reports whether the guest caused the event. RESET and SHUTDOWN know.
func (e Event) ByGuest() bool {
	var data struct {
		Guest bool `json:"guest"`
	}
	// An event that carries no such data was not caused by the guest.
	return json.Unmarshal(e.Data, &data) == nil && data.Guest
}

// Time is when QEMU emitted the event, by the host's clock.
func (e Event) Time() time.Time {
	return time.Unix(e.Timestamp.Seconds, e.Timestamp.Microseconds*int64(time.Microsecond))
}

// sameReboot is well above the time in which firmware resets again (0.05 s) and below that of the fastest boot
// (2.5 s).
const sameReboot = 1500 * time.Millisecond

// countReboots counts bursts of RESET, not single ones. A kernel may pull the reset line several ways in a row. SeaBIOS
// answers every warm reset on a q35 with a second one, because that machine keeps the shadow of the BIOS in RAM.
// Source: SeaBIOS, src/resume.c, handle_resume; src/fw/shadow.c, qemu_reboot.
func countReboots(events []Event) int {
	n := 0
	var last time.Time
	for _, e := range events {
		if e.Name != "RESET" {
			continue
		}
		if n == 0 || e.Time().Sub(last) > sameReboot {
			n++
		}
		last = e.Time()
	}
	return n
}

// RebootsOf counts the reboots of the machine in dir over all its runs, from the log of its events. No log
// means that it has not run.
func RebootsOf(dir string) (int, error) {
	f, err := os.Open(filepath.Join(dir, EventsFile))
	if err != nil {
		return 0, fmt.Errorf("read event log: %w", err)
	}
	defer f.Close() // only read
	events, err := readEvents(f)
	return countReboots(events), err
}

func readEvents(r io.Reader) ([]Event, error) {
	var events []Event
	for dec := json.NewDecoder(r); ; {
		var e Event
		err := dec.Decode(&e)
		// The last line may be in the middle of being written.
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return events, nil
		}
		if err != nil {
			return nil, fmt.Errorf("parse event log: %w", err)
		}
		events = append(events, e)
	}
}
