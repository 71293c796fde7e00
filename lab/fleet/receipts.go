package fleet

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// Receipts is the log of the agents. It keeps when each command was received (in the agent's memory, its
// acknowledgement queued), and the last warning, and lets the rest go.
type Receipts struct {
	mu      sync.Mutex
	at      map[string]time.Time // by operation
	trouble string
}

// receiptLine is what an agent logs then.
const receiptLine = "command received"

func newReceipts() *Receipts { return &Receipts{at: map[string]time.Time{}} }

// Take returns the time at which the first command of an operation was received, and forgets it.
func (r *Receipts) Take(operationID string) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.at[operationID]
	delete(r.at, operationID)
	return at, ok
}

// TakeAll returns all of them, by operation, and forgets them.
func (r *Receipts) TakeAll() map[string]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := maps.Clone(r.at)
	clear(r.at)
	return out
}

func (r *Receipts) lastTrouble() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.trouble
}

// Enabled implements slog.Handler.
func (r *Receipts) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

// Handle implements slog.Handler.
func (r *Receipts) Handle(_ context.Context, line slog.Record) error {
	if line.Level >= slog.LevelWarn {
		r.note(line)
	}
	if line.Message != receiptLine {
		return nil
	}
	line.Attrs(func(a slog.Attr) bool {
		if a.Key != "operation_id" {
			return true
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, known := r.at[a.Value.String()]; !known {
			r.at[a.Value.String()] = line.Time
		}
		return false
	})
	return nil
}

func (r *Receipts) note(line slog.Record) {
	text := line.Message
	line.Attrs(func(a slog.Attr) bool {
		text += " " + a.Key + "=" + a.Value.String()
		return true
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trouble = text
}

// WithAttrs implements slog.Handler; the wanted fields are in the line itself.
func (r *Receipts) WithAttrs([]slog.Attr) slog.Handler { return r }

// WithGroup implements slog.Handler.
func (r *Receipts) WithGroup(string) slog.Handler { return r }
