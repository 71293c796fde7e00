package chassis

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/lab/vm"
)

// SerialPath is the file of SerialLog.
func (c *Chassis) SerialPath() string { return filepath.Join(c.cfg.Dir, vm.SerialFile) }

// SerialLog is everything that the machine has written to its serial port.
func (c *Chassis) SerialLog() ([]byte, error) {
	return os.ReadFile(c.SerialPath())
}

// Said returns the time at which the machine had written the text to its serial port, the first time after since.
func (c *Chassis) Said(text string, since time.Time) (time.Time, bool) {
	said, err := c.SerialLog()
	if err != nil {
		return time.Time{}, false
	}
	c.console.mu.Lock()
	stamps := c.console.stamps
	c.console.mu.Unlock()
	first := sort.Search(len(stamps), func(i int) bool { return stamps[i].at.After(since) })
	if first == len(stamps) {
		return time.Time{}, false
	}
	from := stamps[first].offset
	at := bytes.Index(said[min(from, int64(len(said))):], []byte(text))
	if at < 0 {
		return time.Time{}, false
	}
	end := from + int64(at+len(text))
	last := sort.Search(len(stamps), func(i int) bool { return stamps[i].offset >= end })
	return stamps[last-1].at, true
}

const logPoll = 20 * time.Millisecond

// WaitSaid returns when Said is true.
func (c *Chassis) WaitSaid(ctx context.Context, text string, since time.Time) (time.Time, error) {
	for {
		if at, ok := c.Said(text, since); ok {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for %q on the serial port of %s: %w", text, c.cfg.Name, ctx.Err())
		case <-clock.Real().After(logPoll):
		}
	}
}
