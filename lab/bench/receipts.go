package main

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// receipts is the log of the agents in this process. It keeps when each command was received (durable in the agent's
// memory, its acknowledgement queued), and lets the rest go.
type receipts struct {
	mu sync.Mutex
	at map[string]time.Time // by operation
}

// receiptLine is what an agent logs then.
const receiptLine = "command received"

func newReceipts() *receipts { return &receipts{at: map[string]time.Time{}} }

// take gives the time at which the first command of an operation was received, and forgets it.
func (r *receipts) take(operationID string) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.at[operationID]
	delete(r.at, operationID)
	return at, ok
}

// Enabled implements slog.Handler.
func (r *receipts) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

// Handle implements slog.Handler.
func (r *receipts) Handle(_ context.Context, line slog.Record) error {
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

// WithAttrs implements slog.Handler; what is looked for is in the line itself.
func (r *receipts) WithAttrs([]slog.Attr) slog.Handler { return r }

// WithGroup implements slog.Handler.
func (r *receipts) WithGroup(string) slog.Handler { return r }
