// Package vm runs virtual machines in QEMU as whole computers: with their own kernel, firmware, disks and serial
// console, on QEMU's user network, without root. It watches them from outside over QMP, so a reboot is counted by the
// hardware and not by the guest's output.
//
// A guest reaches the host's loopback at 10.0.2.2. Emulation is always TCG.
package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/swtpm"
)

// Files in a machine's directory.
const (
	SerialFile = "serial.log"   // everything the guest wrote to its first serial port; appended to
	EventsFile = "events.jsonl" // QMP events, one JSON object a line; appended to
	varsFile   = "uefi-vars.fd"
	qmpSocket  = "qmp.sock"
	ctlSocket  = "control.sock"
	tpmDir     = "tpm"
	stderrFile = "qemu.log"
)

// VM is a running machine. Its methods may be called from several goroutines.
type VM struct {
	*Monitor
	cfg     Config
	cmd     *exec.Cmd
	stop    context.CancelFunc
	group   *task.Group
	sockets []string   // made by this machine, and so its to remove
	tpm     *swtpm.TPM // nil if the machine has none
	exited  chan struct{}
	err     error // of the process; valid once exited is closed
}

// Start powers a machine on. It runs until it powers itself off, Stop is called, or ctx ends; it survives its
// own reboots. Stop must be called in any case. The directory must not belong to a running machine.
func Start(ctx context.Context, cfg Config) (*VM, error) {
	if cfg.Console != nil {
		defer cfg.Console.Close() // QEMU has its own copy
	}
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	if err := prepare(cfg); err != nil {
		return nil, fmt.Errorf("prepare machine %s: %w", cfg.Name, err)
	}
	ctx, stop := context.WithCancel(ctx)
	v := &VM{cfg: cfg, stop: stop, exited: make(chan struct{})}
	if err := v.boot(ctx); err != nil {
		err = fmt.Errorf("start machine %s: %w", cfg.Name, err)
		return nil, errors.Join(err, v.Stop())
	}
	return v, nil
}

func (v *VM) boot(ctx context.Context) error {
	if err := v.launch(ctx); err != nil {
		return err
	}
	v.group, _ = task.New(context.WithoutCancel(ctx))
	if v.tpm != nil {
		v.group.Go("tpm", func(context.Context) error { return unlessStopped(ctx, v.tpm.Wait()) })
	}
	v.group.Go("qemu", func(context.Context) error {
		v.err = v.cmd.Wait()
		close(v.exited)
		return nil
	})
	mon, err := dial(v.path(qmpSocket), v.path(EventsFile))
	if err != nil {
		return v.withQEMUOutput(err)
	}
	v.Monitor = mon
	v.group.Go("qmp", func(context.Context) error { return mon.read() })
	if err := mon.handshake(ctx); err != nil {
		return v.withQEMUOutput(err)
	}
	// The processor stood still until now, so no event was missed.
	_, err = mon.execute(ctx, "cont", nil)
	return err
}

// unlessStopped forgives an end by a signal, where the machine's power was cut.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// launch hands QEMU listening sockets instead of names, so there is no moment at which they aren't there yet.
func (v *VM) launch(ctx context.Context) error {
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close() // QEMU has its own copy. A console is closed twice, which does no harm.
		}
	}()
	for _, name := range []string{qmpSocket, ctlSocket} {
		f, err := listen(v.path(name))
		if err != nil {
			return err
		}
		files = append(files, f)
		v.sockets = append(v.sockets, v.path(name))
	}
	log, err := os.Create(v.path(stderrFile))
	if err != nil {
		return err
	}
	defer log.Close() // QEMU has its own copy
	if v.cfg.Console != nil {
		files = append(files, v.cfg.Console) // the third, and so descriptor 5
	}
	if v.cfg.TPM {
		chip, channel, err := swtpm.Start(ctx, v.path(tpmDir))
		if err != nil {
			return err
		}
		v.tpm = chip
		files = append(files, channel)
		v.cfg.tpmDescriptor = 2 + len(files)
	}
	argv := slices.Concat(v.cfg.Launcher, []string{qemuBinary}, arguments(v.cfg))
	v.cmd = exec.CommandContext(ctx, argv[0], argv[1:]...)
	v.cmd.ExtraFiles = files
	v.cmd.Stdout, v.cmd.Stderr = log, log
	// A test binary that is killed must not leave machines behind.
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return v.cmd.Start()
}

// withQEMUOutput adds what QEMU said to an error that is only its consequence.
func (v *VM) withQEMUOutput(err error) error {
	said, readErr := os.ReadFile(v.path(stderrFile))
	if readErr != nil || len(said) == 0 {
		return err
	}
	return fmt.Errorf("%w: qemu says: %s", err, bytes.TrimSpace(said))
}

// Wait returns when the machine is off or ctx ends.
func (v *VM) Wait(ctx context.Context) error {
	select {
	case <-v.exited:
		return v.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stop cuts the power and returns when nothing of the machine is running. Serial log, events and disks stay. It
// may be called again.
func (v *VM) Stop() error {
	v.stop()
	var err error
	switch {
	case v.group != nil:
		err = v.group.Wait()
	case v.tpm != nil: // QEMU did not start, and the TPM was killed
		_ = v.tpm.Wait()
	}
	for _, path := range v.sockets {
		if rmErr := os.Remove(path); !errors.Is(rmErr, os.ErrNotExist) {
			err = errors.Join(err, rmErr)
		}
	}
	return err
}

// Config is what the machine was started with, defaults filled in.
func (v *VM) Config() Config { return v.cfg }

// PID is QEMU's process id.
func (v *VM) PID() int { return v.cmd.Process.Pid }

// SerialPath is the file that the guest's serial console goes to.
func (v *VM) SerialPath() string { return v.path(SerialFile) }

// Serial is what the guest has written to its serial console so far.
func (v *VM) Serial() (string, error) {
	data, err := os.ReadFile(v.SerialPath())
	return string(data), err
}

const serialPoll = 20 * time.Millisecond

// WaitSerial returns the console's output once ok is true of it. It fails when the machine ends or ctx does.
func (v *VM) WaitSerial(ctx context.Context, ok func(string) bool) (string, error) {
	for {
		// Asked first: what a machine wrote before its end still counts.
		over := v.Off()
		text, err := v.Serial()
		switch {
		case err != nil:
			return text, fmt.Errorf("read serial console: %w", err)
		case ok(text):
			return text, nil
		case over:
			return text, errors.New("machine ended before its console said what was waited for")
		}
		select {
		case <-ctx.Done():
			return text, fmt.Errorf("wait for serial console: %w", ctx.Err())
		case <-clock.Real().After(serialPoll):
		}
	}
}

// Off reports whether the machine has ended.
func (v *VM) Off() bool {
	select {
	case <-v.exited:
		return true
	default:
		return false
	}
}

func (v *VM) path(name string) string { return filepath.Join(v.cfg.Dir, name) }

// prepare makes the directory and, for UEFI, the machine's own copy of the firmware's variables.
func prepare(cfg Config) error {
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return err
	}
	if cfg.Firmware != UEFI {
		return nil
	}
	path := filepath.Join(cfg.Dir, varsFile)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	vars, err := os.ReadFile(ovmfVars)
	if err != nil {
		return err
	}
	return os.WriteFile(path, vars, 0o600)
}

// Available returns an error with the packages to install when a machine with this firmware can't be run here.
func Available(f Firmware) error {
	var missing []string
	if _, err := exec.LookPath(qemuBinary); err != nil {
		missing = append(missing, "qemu-system-x86")
	}
	if _, err := os.Stat(ovmfVars); f == UEFI && err != nil {
		missing = append(missing, "ovmf")
	}
	if len(missing) > 0 {
		return fmt.Errorf("install the package %s", strings.Join(missing, " and "))
	}
	return nil
}
