package fleet

import (
	"log/slog"
	"testing"
	"time"
)

func TestReceiptsKeepTheFirstTime(t *testing.T) {
	t.Parallel()
	r := newReceipts()
	log := slog.New(r).With("agent_id", "a-1")
	before := time.Now()
	log.Info(receiptLine, "command_id", "cmd-1", "operation_id", "op-1")
	log.Warn("something else", "operation_id", "op-2")
	first, ok := r.Take("op-1")
	if !ok || first.Before(before) {
		t.Errorf("got %v, %t", first, ok)
	}
	for _, id := range []string{"op-1", "op-2"} {
		if at, ok := r.Take(id); ok {
			t.Errorf("%s: a receipt at %v", id, at)
		}
	}
	log.Info(receiptLine, "operation_id", "op-3")
	if all := r.TakeAll(); len(all) != 1 || len(r.TakeAll()) != 0 {
		t.Errorf("all: %v", all)
	}
	if got := r.lastTrouble(); got != "something else operation_id=op-2" {
		t.Errorf("the last trouble was %q", got)
	}
}
