// Package erase destroys the data on a machine's disks, from the installer. It is done when each disk has been read
// back; the evidence names how each was erased and why no better method was used.
package erase

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/command"
	"github.com/ingot-metal/ingot/agent/disk/erase"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/disk"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Machine is one whose disks can be erased; *host.Linux is one.
type Machine interface {
	DisksToErase(rule string, protected []string) ([]disk.Device, error)
	EraseDisk(ctx context.Context, e host.Effect, id string, m erase.Method, progress func(int, string)) (erase.Evidence, error)
}

// Config is what the executor needs.
type Config struct {
	Machine Machine
	Clock   clock.Clock
}

// Executor is the erase executor.
type Executor struct{ cfg Config }

var _ command.Executor = (*Executor)(nil)

// New makes the executor for the machine that it runs on.
func New(cfg Config) *Executor { return &Executor{cfg: cfg} }

type intent struct {
	Method erase.Method `json:"method"`
	Disks  []string     `json:"disks"` // disk.Device.ID
}

// Prepare chooses the disks.
func (e *Executor) Prepare(_ context.Context, spec *fleetv1.CommandSpec) (any, *command.Result, error) {
	a := spec.GetErase()
	method, err := erase.Parse(a.GetMethod())
	if err != nil {
		r := command.Failed(baremetalv1.Reason_INVALID_FIELD, "%v", err)
		return nil, &r, nil
	}
	devices, err := e.cfg.Machine.DisksToErase(a.GetDiskRule(), a.GetProtectedDisks())
	var no *disk.NoUniqueMatch
	if errors.As(err, &no) {
		r := command.Failed(baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH, "%v", no)
		return nil, &r, nil
	}
	if r, ok := command.FromRefusal(err, baremetalv1.Reason_CAPABILITY_MISSING); ok {
		return nil, &r, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("choose disks: %w", err)
	}
	in := intent{Method: method}
	for _, d := range devices {
		in.Disks = append(in.Disks, d.ID())
	}
	return in, nil, nil
}

// Execute erases one disk after the other. A cancel stops between blocks where the method has any, else after the disk.
func (e *Executor) Execute(ctx context.Context, job command.Job) (command.Result, error) {
	var in intent
	if err := job.DecodeIntent(&in); err != nil {
		return command.Result{}, err
	}
	if r, err := job.MayDestroy(ctx); r != nil || err != nil {
		return command.Stopped(ctx, r, err)
	}
	begun := e.cfg.Clock.Now()
	proof := map[string]string{"disks": strings.Join(in.Disks, ",")}
	var used []string
	for i, id := range in.Disks {
		job.Logf("erasing disk %s (%s)", id, in.Method)
		got, err := e.cfg.Machine.EraseDisk(ctx, job.Effect(), id, in.Method, func(percent int, what string) {
			job.Progress((i*100+percent)/len(in.Disks), fmt.Sprintf("disk %d/%d: %s", i+1, len(in.Disks), what))
		})
		if hit := command.AfterEffect.HitCtx(ctx); hit != nil {
			return command.Result{}, hit
		}
		if err != nil {
			return concluded(ctx, id, i > 0, got, err, proof)
		}
		job.Logf("erased disk %s by %s: %s", id, howOf(got), got.Verification)
		used = append(used, string(got.Method))
		record(proof, fmt.Sprintf("disk_%d_", i), id, got)
	}
	proof[evidence.EraseMethod] = strings.Join(used, ",")
	proof["seconds"] = fmt.Sprintf("%.1f", e.cfg.Clock.Now().Sub(begun).Seconds())
	return command.Succeeded(proof), nil
}

func howOf(e erase.Evidence) string {
	if e.Detail == "" {
		return string(e.Method)
	}
	return fmt.Sprintf("%s (%s)", e.Method, e.Detail)
}

func record(proof map[string]string, prefix, id string, e erase.Evidence) {
	proof[prefix+"id"] = id
	proof[prefix+"method"] = howOf(e)
	proof[prefix+"verification"] = e.Verification
	proof[prefix+"seconds"] = fmt.Sprintf("%.1f", e.Took.Round(100*time.Millisecond).Seconds())
	if len(e.Why) > 0 {
		proof[prefix+"not_used"] = strings.Join(e.Why, "; ")
	}
}

// concluded turns an error into a result. touched says that another disk was erased before this one.
func concluded(ctx context.Context, id string, touched bool, got erase.Evidence, err error, proof map[string]string) (command.Result, error) {
	if r, ok := command.FromRefusal(err, baremetalv1.Reason_CAPABILITY_MISSING); ok {
		return r.WithEvidence(proof), nil
	}
	if len(got.Why) > 0 {
		proof["tried"] = strings.Join(got.Why, "; ")
	}
	var r command.Result
	switch {
	case errors.Is(err, command.ErrCanceled):
		r = command.Canceled("stopped; disk %s may be erased in part", id)
	case errors.Is(err, command.ErrTimeout):
		r = command.Failed(baremetalv1.Reason_STEP_TIMEOUT, "the time was up; disk %s may be erased in part", id).AndRetry()
	case command.Interrupted(ctx):
		return command.Result{}, command.ErrInterrupted
	case errors.Is(err, erase.ErrUnsupported):
		r = command.Failed(baremetalv1.Reason_ERASE_UNSUPPORTED, "disk %s: %v", id, err)
	case errors.Is(err, erase.ErrNotErased):
		r = command.Failed(baremetalv1.Reason_EVIDENCE_MISSING, "disk %s: %v", id, err).AndRetry()
	default:
		r = command.Failed(baremetalv1.Reason_DISK_WRITE_ERROR, "disk %s: %v", id, err).AndRetry()
	}
	if touched {
		r.Message += "; disks before it are erased"
	}
	return r.WithEvidence(proof), nil
}

// Resume knows of nothing that was verified before a restart: another attempt erases again, which does no harm.
func (e *Executor) Resume(context.Context, command.Job) (command.Verdict, error) {
	return command.Settle(command.Failed(baremetalv1.Reason_EXECUTION_FAILED,
		"the agent was restarted during the erasure; disks may be erased in part").AndRetry()), nil
}
