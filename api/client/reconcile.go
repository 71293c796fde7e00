package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Reconciler keeps a copy of the fleet up to date without a stream: it walks the fleet once, and then reads the
// changes. It misses no change, deletions included, however long it was away. Its cursor is in a file, so that the next
// run goes on where the last one ended.
type Reconciler struct {
	// Conn is a connection of Dial.
	Conn grpc.ClientConnInterface
	// CursorFile keeps the cursor. It is replaced when a part has been applied, and never before. Empty: each Reconciler
	// begins with a walk.
	CursorFile string
	// Apply takes a machine that is new or has changed. One with DeletedAt is gone. A machine may come again as it was:
	// compare machine.version. An error ends the pass, and what was not applied comes again.
	Apply func(context.Context, *baremetalv1.Machine) error
	// Walked is called at the end of a full walk with the ids of all machines: what the copy has besides is gone. It may
	// be nil where the copy is empty before each walk.
	Walked func(ctx context.Context, ids map[string]bool) error
	// Every is how long Run rests between passes; 0 means 10 s.
	Every time.Duration

	cursor string
	loaded bool
}

// Run passes for ever: until the context ends, or Apply or Walked fail, or the API refuses what no wait cures.
func (r *Reconciler) Run(ctx context.Context) error {
	var back Backoff
	for {
		wait := r.Every
		if wait == 0 {
			wait = 10 * time.Second
		}
		switch err := r.Pass(ctx); {
		case err == nil:
			back.Reset()
		case ctx.Err() != nil:
			return ctx.Err()
		case !Transient(err):
			return err
		default:
			wait = max(back.Next(), RetryAfter(err))
		}
		if !rest(ctx, wait) {
			return ctx.Err()
		}
	}
}

// Pass reads all changes since the last pass, and returns when there are no more. Without a cursor it walks the fleet.
// It does so too when a restore of the database has ended the cursor.
func (r *Reconciler) Pass(ctx context.Context) error {
	if err := r.load(); err != nil {
		return err
	}
	machines := baremetalv1.NewMachineServiceClient(r.Conn)
	if r.cursor != "" {
		err := r.changes(ctx, machines)
		if Reason(err) != baremetalv1.Reason_CURSOR_EXPIRED {
			return err
		}
	}
	if err := r.walk(ctx, machines); err != nil {
		return err
	}
	return r.changes(ctx, machines)
}

// changes applies the changes since the cursor.
func (r *Reconciler) changes(ctx context.Context, machines baremetalv1.MachineServiceClient) error {
	for {
		page, err := machines.ListMachines(ctx, &baremetalv1.ListMachinesRequest{Cursor: r.cursor})
		if err != nil {
			return fmt.Errorf("read what has changed: %w", err)
		}
		if err := r.apply(ctx, page); err != nil {
			return err
		}
		if err := r.keep(page.GetNextCursor()); err != nil || !page.GetMore() {
			return err
		}
	}
}

// walk applies the whole fleet. The cursor is that of before the first page: what changes meanwhile comes afterwards.
func (r *Reconciler) walk(ctx context.Context, machines baremetalv1.MachineServiceClient) error {
	ids, request, cursor := map[string]bool{}, &baremetalv1.ListMachinesRequest{}, ""
	for {
		page, err := machines.ListMachines(ctx, request)
		if err != nil {
			return fmt.Errorf("walk the fleet: %w", err)
		}
		if cursor == "" {
			cursor = page.GetNextCursor()
		}
		if err := r.apply(ctx, page); err != nil {
			return err
		}
		for _, m := range page.GetMachines() {
			ids[m.GetMachineId()] = true
		}
		if request.PageToken = page.GetNextPageToken(); request.GetPageToken() == "" {
			break
		}
	}
	if r.Walked != nil {
		if err := r.Walked(ctx, ids); err != nil {
			return err
		}
	}
	return r.keep(cursor)
}

func (r *Reconciler) apply(ctx context.Context, page *baremetalv1.ListMachinesResponse) error {
	for _, m := range page.GetMachines() {
		if err := r.Apply(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// load reads the cursor of the run before, once.
func (r *Reconciler) load() error {
	if r.loaded || r.CursorFile == "" {
		return nil
	}
	raw, err := os.ReadFile(r.CursorFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the cursor: %w", err)
	}
	r.cursor, r.loaded = strings.TrimSpace(string(raw)), true
	return nil
}

// keep replaces the file, so that it holds the old cursor or the new one, whatever happens.
func (r *Reconciler) keep(cursor string) error {
	if r.cursor == cursor {
		return nil
	}
	r.cursor = cursor
	if r.CursorFile == "" {
		return nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(r.CursorFile), ".cursor-*")
	if err != nil {
		return fmt.Errorf("keep the cursor: %w", err)
	}
	_, err = tmp.WriteString(cursor + "\n")
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), r.CursorFile)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("keep the cursor: %w", err), os.Remove(tmp.Name()))
	}
	return nil
}
