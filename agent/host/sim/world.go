package sim

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/clock"
)

var (
	// ErrInjected is the error of a scripted failure.
	ErrInjected = errors.New("scripted failure of the simulated machine")
	// ErrDown: the machine is off, or has gone down since this view of it was made.
	ErrDown = errors.New("the simulated machine is down")
)

// WorldConfig is a world's directory and its behavior for this process.
type WorldConfig struct {
	Dir    string
	Script string // see ParseScript
	// Delay is the time from accepting a reboot to the new boot id.
	Delay time.Duration
	// RepaveTime is the time that a repave takes.
	RepaveTime time.Duration
	Clock      clock.Clock // nil: the real one, of this system
	// Crash kills this process for crash-before and crash-after. nil: SIGKILL to itself. If it returns, the call
	// that crashed returns ErrInjected.
	Crash func()
	// NoSync leaves out the fsync of the journal: kill -9 loses nothing, a power failure may. For benchmarks.
	NoSync bool
	// Recorder is the unix socket of a process that counts effects too, each before the call for it returns; "" is none.
	// An effect that it does not take is an error of the call, though the effect has happened.
	Recorder string
}

// World is a directory of simulated machines. Machines exist from their first use.
type World struct {
	cfg    WorldConfig
	script Script
}

// OpenWorld makes the directory if it is missing.
func OpenWorld(cfg WorldConfig) (*World, error) {
	script, err := ParseScript(cfg.Script)
	if err != nil {
		return nil, fmt.Errorf("read simulation script: %w", err)
	}
	if cfg.Clock == nil {
		cfg.Clock = worldClock{clock.Real()}
	}
	if cfg.Crash == nil {
		cfg.Crash = killSelf
	}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, "machines"), 0o755); err != nil {
		return nil, fmt.Errorf("make simulated world: %w", err)
	}
	return &World{cfg: cfg, script: script}, nil
}

func killSelf() {
	// The signal cannot be caught; should it fail, the caller still answers with ErrInjected.
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}

// Dir is the world's directory, for ReadJournal.
func (w *World) Dir() string { return w.cfg.Dir }

// State returns the machine as it is now, after everything that is due.
func (w *World) State(machineID string) (MachineState, error) {
	return w.update(machineID, func(*MachineState, time.Time) error { return nil })
}

// Settle lets everything that is due happen on every machine that exists.
func (w *World) Settle() error {
	paths, err := machineFiles(w.cfg.Dir)
	if err != nil {
		return err
	}
	for _, path := range paths {
		st, ok, err := readState(path)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if _, err := w.State(st.MachineID); err != nil {
			return err
		}
	}
	return nil
}

// update runs fn on the machine under its lock and makes what it did durable, even if it returns an error.
func (w *World) update(machineID string, fn func(*MachineState, time.Time) error) (_ MachineState, err error) {
	if machineID == "" {
		return MachineState{}, fmt.Errorf("use simulated machine: no machine id: %w", effect.ErrInvalid)
	}
	path := stateFile(w.cfg.Dir, machineID)
	unlock, err := lock(path)
	if err != nil {
		return MachineState{}, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	st, err := w.load(path, machineID)
	if err != nil {
		return MachineState{}, err
	}
	before := encode(st)
	now := w.cfg.Clock.Now()
	st.settle(now)
	fnErr := fn(&st, now)
	if !bytes.Equal(before, encode(st)) || st.fresh {
		if err := w.save(path, &st); err != nil {
			return MachineState{}, errors.Join(fnErr, err)
		}
	}
	return st, fnErr
}

// load returns the machine, new if it is unused, and writes the records that a killed process owed to the journal.
func (w *World) load(path, machineID string) (MachineState, error) {
	st, ok, err := readState(path)
	if err != nil {
		return st, err
	}
	if !ok {
		return newMachine(machineID), nil
	}
	if len(st.Outbox) == 0 {
		return st, nil
	}
	return st, w.pay(path, &st)
}

func (w *World) pay(path string, st *MachineState) error {
	journal := filepath.Join(w.cfg.Dir, JournalName)
	have, err := readJournalFile(journal)
	if err != nil {
		return err
	}
	st.Outbox = missingFrom(have, st.Outbox)
	return w.save(path, st)
}

// save writes the state with what it owes, pays, and writes it again without.
func (w *World) save(path string, st *MachineState) error {
	if err := writeState(path, *st); err != nil {
		return err
	}
	if len(st.Outbox) == 0 {
		return nil
	}
	if w.cfg.Recorder != "" {
		if err := report(w.cfg.Recorder, st.Outbox); err != nil {
			return err
		}
	}
	if err := appendJournal(filepath.Join(w.cfg.Dir, JournalName), st.Outbox, !w.cfg.NoSync); err != nil {
		return err
	}
	st.Outbox = nil
	return writeState(path, *st)
}
