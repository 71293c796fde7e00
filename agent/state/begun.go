package state

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Begun is a Store that also records the commands that were started in this boot of the machine. The record is in a
// directory that ends with the boot and is in no copy of the state directory. It detects an old copy of the memory that
// was restored in the same boot: there a started command is only received.
//
// A start that cannot be kept there is logged and goes on.
type Begun struct {
	*Store
	dir  string
	log  *slog.Logger
	warn sync.Once
}

// OpenBegun keeps what s starts in the boot bootID below the directory run, and removes what other boots left there.
// Without a directory or a boot id nothing is kept. ErrRolledBack: s is older than a start of this boot.
func OpenBegun(ctx context.Context, s *Store, run, bootID string, log *slog.Logger) (*Begun, error) {
	b := &Begun{Store: s, log: log}
	if run == "" || bootID == "" {
		return b, nil
	}
	run = filepath.Join(run, "begun")
	b.dir = filepath.Join(run, bootID)
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		b.complain(err)
		b.dir = ""
		return b, nil
	}
	boots, err := os.ReadDir(run)
	for _, e := range boots {
		if e.Name() != bootID {
			err = errors.Join(err, os.RemoveAll(filepath.Join(run, e.Name())))
		}
	}
	b.complain(err)
	return b, b.compare(ctx)
}

func (b *Begun) compare(ctx context.Context) error {
	list, err := b.Unsettled(ctx)
	for _, c := range list {
		if c.State != Received {
			continue
		}
		switch _, err := os.Lstat(b.file(c.ID)); {
		case err == nil:
			return fmt.Errorf("%w: command %s was started in this boot", ErrRolledBack, c.ID)
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("look whether command %s was started in this boot: %w", c.ID, err)
		}
	}
	return err
}

// Start starts a command as [Store.Start] does, and then keeps that for this boot. ErrRolledBack: a process with
// another copy of this memory has started the command in this boot.
func (b *Begun) Start(ctx context.Context, id string, intent, grant []byte, now time.Time) error {
	if err := b.Store.Start(ctx, id, intent, grant, now); err != nil || b.dir == "" {
		return err
	}
	f, err := os.OpenFile(b.file(id), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	switch {
	case err == nil:
		err = f.Close()
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%w: command %s was started in this boot by another process", ErrRolledBack, id)
	}
	b.complain(err)
	return nil
}

// Unstart forgets the start for this boot first: a start without an effect may be done again.
func (b *Begun) Unstart(ctx context.Context, id string) error {
	if err := b.drop(id); err != nil {
		return err
	}
	return b.Store.Unstart(ctx, id)
}

// Settle also forgets the start of a command that the controller wants no more of.
func (b *Begun) Settle(ctx context.Context, id string) error {
	if err := b.Store.Settle(ctx, id); err != nil {
		return err
	}
	b.complain(b.drop(id))
	return nil
}

// file is named by a digest: a controller may send any id.
func (b *Begun) file(id string) string {
	return filepath.Join(b.dir, fmt.Sprintf("%x", sha256.Sum256([]byte(id))))
}

func (b *Begun) drop(id string) error {
	if b.dir == "" {
		return nil
	}
	if err := os.Remove(b.file(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the start of command %s in this boot: %w", id, err)
	}
	return nil
}

func (b *Begun) complain(err error) {
	if err != nil {
		b.warn.Do(func() {
			b.log.Warn("what is started in this boot is kept in the state directory alone: "+
				"an old copy of that, put back in the same boot, may be missed", "error", err)
		})
	}
}
