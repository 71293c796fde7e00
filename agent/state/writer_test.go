package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestWritesThatComeTogether: writes that wait for another share its successor's transaction, and each hears what
// became of itself: one that is refused, and one that panics, take nothing of the others with them.
func TestWritesThatComeTogether(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	conn, err := s.db.Conn(t.Context()) // the only one: everybody waits
	if err != nil {
		t.Fatal(err)
	}
	const writes, refused, panics = 40, 7, 11
	errs := make([]error, writes)
	var wg sync.WaitGroup
	for i := range writes {
		wg.Go(func() {
			switch i {
			case refused:
				errs[i] = s.Finish(context.Background(), "nobody's", nil, time.Now())
			case panics:
				errs[i] = s.write(context.Background(), "panic", func(tx *sql.Tx) error {
					if err := setMeta(tx, "half", []byte("done")); err != nil {
						return err
					}
					panic("in the middle")
				})
			default:
				_, _, errs[i] = s.Receive(context.Background(), Command{ID: fmt.Sprint("c-", i), TargetID: "m"})
			}
		})
	}
	for deadline := time.Now().Add(30 * time.Second); s.writes.group.Waiting() < writes-1; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d wait", s.writes.group.Waiting())
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	for i, err := range errs {
		switch {
		case i == refused && errors.Is(err, ErrConflict), i == panics && err != nil:
		case i == refused, i == panics, err != nil:
			t.Errorf("write %d: %v", i, err)
		}
	}
	var stored, half int
	if err := s.db.QueryRow("SELECT (SELECT count(*) FROM commands), (SELECT count(*) FROM meta WHERE key = 'half')").
		Scan(&stored, &half); err != nil || stored != writes-2 || half != 0 {
		t.Errorf("%d commands, %d halves of writes, %v", stored, half, err)
	}
}
