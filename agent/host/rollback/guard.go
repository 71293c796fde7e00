package rollback

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/system"
	"github.com/ingot-metal/ingot/internal/clock"
)

const (
	// GuardFile, below the root, holds the last guarded change as JSON.
	GuardFile = "etc/ingot/network/guard.json"
	guardLock = "etc/ingot/network/lock"
	// Grace is how much later than the agent itself the watchdog goes back.
	Grace = 2 * time.Second
	// damagedSuffix is of a record that cannot be read, and was put aside.
	damagedSuffix = ".damaged"
)

// Watchdog goes back from a change that has not proved itself, by a timer of systemd's or at boot.
type Watchdog struct {
	*system.System
	Table      *firewall.Nftables
	Interfaces *network.Configurator
}

// Guard writes the record and then sets the timer. A change of another command that is still pending is not forgotten.
func (w *Watchdog) Guard(ctx context.Context, g Guard) error {
	return w.locked(func() error {
		old, err := w.Guarded(ctx)
		if err != nil {
			return err
		}
		if old != nil && old.State == GuardPending && old.CommandID != g.CommandID {
			return effect.Refuse(
				effect.ErrUnsupported,
				effect.ReasonGuardPending,
				"the change of command %s has not proved itself yet",
				old.CommandID,
			)
		}
		// The record that is about to go may be the only one of a committed policy.
		if err := w.keepCommitted(ctx, old); err != nil {
			return err
		}
		g.State, g.BootID = GuardPending, w.BootID()
		if err := w.WriteJSON(GuardFile, g); err != nil {
			return err
		}
		if err := w.arm(ctx, g.Deadline-clock.Boottime()); err != nil {
			g.State = GuardRolledBack
			return errors.Join(fmt.Errorf("set the rollback timer: %w", err), w.WriteJSON(GuardFile, g))
		}
		return nil
	})
}

// arm starts the timer that rolls back at the deadline. Where systemd is not init, process 1 is us and reads the
// record.
func (w *Watchdog) arm(ctx context.Context, after time.Duration) error {
	if !w.RunsSystemd() {
		return nil
	}
	return w.Kernel.Arm(ctx, max(after, 0)+Grace)
}

// CommitGuard writes the commit before the timer is taken away.
func (w *Watchdog) CommitGuard(ctx context.Context, commandID string) error {
	return w.locked(func() error {
		g, err := w.guardOf(ctx, commandID)
		switch {
		case err != nil:
			return err
		case g.State == GuardCommitted:
			return nil
		case g.State != GuardPending || g.Due(w.BootID(), clock.Boottime()):
			return fmt.Errorf("commit the change of command %s: %w", commandID, ErrGuardLost)
		}
		g.State = GuardCommitted
		if err := w.WriteJSON(GuardFile, g); err != nil {
			return err
		}
		if err := w.keepCommitted(ctx, &g); err != nil { // a boot reads the same in the record
			w.Log.Error("the committed firewall policy is not in its file yet", "error", err)
		}
		w.disarm(ctx)
		return nil
	})
}

// RollBackGuard goes back whatever the time.
func (w *Watchdog) RollBackGuard(ctx context.Context, commandID string) error {
	return w.locked(func() error {
		g, err := w.guardOf(ctx, commandID)
		if err != nil {
			return err
		}
		switch g.State {
		case GuardCommitted:
			return fmt.Errorf("roll back the change of command %s: it is committed", commandID)
		case GuardAbandoned:
			return fmt.Errorf("roll back the change of command %s: %w", commandID, ErrGuardAbandoned)
		case GuardRolledBack:
			return nil
		}
		if err := w.goBack(ctx, g); err != nil {
			return err
		}
		w.disarm(ctx)
		return nil
	})
}

// RollBackPending goes back if a change is pending and has had its time, or whatever the time with now. done reports
// whether a rollback was made.
func (w *Watchdog) RollBackPending(ctx context.Context, now bool) (done bool, err error) {
	// Where nothing was ever guarded there is nothing to lock either.
	if g, err := w.Guarded(ctx); err != nil || g == nil && len(w.Interfaces.HalfWritten()) == 0 {
		return false, err
	}
	err = w.locked(func() error {
		g, err := w.Guarded(ctx)
		switch {
		case err != nil:
			return err
		case g == nil || g.State != GuardPending: // files are written while a change is pending, or under this lock
			_ = w.Interfaces.RemoveHalfWritten() // on a file system that is read-only they do no harm until the next try
			return nil
		}
		if !now && !g.Due(w.BootID(), clock.Boottime()) {
			return nil
		}
		done = true
		return w.goBack(ctx, *g)
	})
	return done, err
}

// AbandonGuard keeps the host as it is, by an operator's word: a pending change is neither proven nor rolled back any
// more. It returns the change, nil where none was pending. A record that cannot be read is put aside.
func (w *Watchdog) AbandonGuard(ctx context.Context) (was *Guard, err error) {
	err = w.locked(func() error {
		g, err := w.Guarded(ctx)
		if isDamaged(err) {
			if renameErr := os.Rename(w.Path(GuardFile), w.Path(GuardFile+damagedSuffix)); renameErr != nil {
				return errors.Join(err, renameErr)
			}
			was = &Guard{State: GuardAbandoned, Error: err.Error()}
			return system.SyncDir(filepath.Dir(w.Path(GuardFile)))
		}
		if err != nil || g == nil || g.State != GuardPending {
			return err
		}
		g.State = GuardAbandoned
		if err := w.WriteJSON(GuardFile, *g); err != nil {
			return err
		}
		w.disarm(ctx)
		was = g
		return nil
	})
	return was, err
}

func isDamaged(err error) bool {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	return errors.As(err, &syntax) || errors.As(err, &kind)
}

// goBack restores everything that it can, and notes the end, or the reason why it is not there yet.
func (w *Watchdog) goBack(ctx context.Context, g Guard) error {
	effect := effect.Cause{CommandID: g.CommandID + "-rollback", OperationID: g.OperationID, MachineID: g.MachineID}
	var errs []error
	if g.Network != nil {
		errs = append(errs, w.Interfaces.RestoreNetwork(ctx, effect, *g.Network))
	}
	if g.Hostname != "" {
		err := w.SetHostname(ctx, effect, g.Hostname)
		if err != nil { // a file that cannot be written does not keep the running name from coming back
			err = errors.Join(err, w.Kernel.Sethostname([]byte(g.Hostname)))
		}
		errs = append(errs, err)
	}
	// The table does not outlive the kernel that holds it.
	if g.SetsFirewall && g.BootID == w.BootID() {
		errs = append(errs, w.restoreFirewall(ctx, effect, g.Firewall))
	}
	err := errors.Join(errs...)
	g.State, g.Error = GuardRolledBack, ""
	if err != nil {
		g.State, g.Error = GuardPending, err.Error()
	}
	return errors.Join(err, w.WriteJSON(GuardFile, g))
}

// restoreFirewall overwrites whatever the table holds: it is the one that failed.
func (w *Watchdog) restoreFirewall(ctx context.Context, e effect.Cause, p *firewall.Policy) error {
	if p == nil {
		return w.Table.RemoveFirewall(ctx, e)
	}
	before := *p
	before.OverwriteDrift = true
	return w.Table.ApplyFirewall(ctx, e, before)
}

// Guarded reads the record.
func (w *Watchdog) Guarded(context.Context) (*Guard, error) {
	var g Guard
	found, err := w.ReadJSON(GuardFile, &g)
	if err != nil || !found {
		return nil, err
	}
	return &g, nil
}

func (w *Watchdog) guardOf(ctx context.Context, commandID string) (Guard, error) {
	g, err := w.Guarded(ctx)
	if err != nil {
		return Guard{}, err
	}
	if g == nil || g.CommandID != commandID {
		return Guard{}, fmt.Errorf("find the change of command %s: no such guard", commandID)
	}
	return *g, nil
}

// disarm stops the timer. A timer that could not be stopped finds nothing to undo: the record decides.
func (w *Watchdog) disarm(ctx context.Context) {
	if w.RunsSystemd() {
		_ = w.Kernel.Disarm(ctx) // see above
	}
}

// locked keeps the agent, the watchdog and the boot from deciding about one change at once.
func (w *Watchdog) locked(fn func() error) (err error) {
	if err := system.MakeDir(w.Path("etc/ingot/network")); err != nil {
		return err
	}
	f, err := os.OpenFile(w.Path(guardLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil { // a file system that became read-only does not block the rollback
		f, err = os.Open(w.Path(guardLock))
	}
	if err != nil {
		return fmt.Errorf("open the lock of changes: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }() // which releases the lock
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("lock changes: %w", err)
	}
	return fn()
}
