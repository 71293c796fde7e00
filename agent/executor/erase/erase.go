// Package erase destroys the data on a machine's disks, from the installer. It is done when each disk has been read
// back; the evidence names how each was erased and why no better method was used.
package erase

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/disk/erase"
	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/disk"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/task"
)

// Declaration of the action.
var Declaration = executor.Declaration{Action: "erase", Harm: executor.Destroys}

// Machine is one whose disks can be erased; *host.Linux is one.
type Machine interface {
	DisksToErase(rule string, protected []string) ([]disk.Device, error)
	EraseDisk(ctx context.Context, e effect.Cause, ref disk.Ref, m erase.Method,
		progress func(int, string)) (erase.Evidence, error)
}

// Config is what the executor needs.
type Config struct {
	Machine Machine
	Clock   clock.Clock
}

// Executor is the erase executor.
type Executor struct{ cfg Config }

var _ executor.Executor = (*Executor)(nil)

// New makes the executor for the machine that it runs on.
func New(cfg Config) *Executor { return &Executor{cfg: cfg} }

type intent struct {
	Method erase.Method `json:"method"`
	Disks  []disk.Ref   `json:"disks"`
}

func (in intent) ids() []string {
	var out []string
	for _, r := range in.Disks {
		out = append(out, r.ID)
	}
	return out
}

// Prepare chooses the disks.
func (e *Executor) Prepare(_ context.Context, spec *fleetv1.CommandSpec) (any, *executor.Result, error) {
	a := spec.GetErase()
	method, err := erase.Parse(a.GetMethod())
	if err != nil {
		r := executor.Failed(baremetalv1.Reason_INVALID_FIELD, "%v", err)
		return nil, &r, nil
	}
	devices, err := e.cfg.Machine.DisksToErase(a.GetDiskRule(), a.GetProtectedDisks())
	var no *disk.NoUniqueMatch
	if errors.As(err, &no) {
		r := executor.Failed(baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH, "%v", no)
		return nil, &r, nil
	}
	if r, ok := executor.FromRefusal(err, baremetalv1.Reason_CAPABILITY_MISSING); ok {
		return nil, &r, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("choose disks: %w", err)
	}
	in := intent{Method: method}
	for _, d := range devices {
		in.Disks = append(in.Disks, d.Ref())
	}
	return in, nil, nil
}

// Execute erases all disks at once: one that is dead or slow does not keep the others from being erased. A cancel stops
// between blocks where the method has any, else after the disk.
func (e *Executor) Execute(ctx context.Context, job executor.Job) (executor.Result, error) {
	var in intent
	if err := job.DecodeIntent(&in); err != nil {
		return executor.Result{}, err
	}
	if r, err := job.MayDestroy(ctx); r != nil || err != nil {
		return executor.Stopped(ctx, r, err)
	}
	begun := e.cfg.Clock.Now()
	ends := e.eraseAll(ctx, job, in)
	if hit := executor.AfterEffect.HitCtx(ctx); hit != nil {
		return executor.Result{}, hit
	}
	proof := map[string]string{"disks": strings.Join(in.ids(), ",")}
	var used, erased []string
	var bad []ending
	for i, end := range ends {
		record(proof, evidence.ErasedDisk(i), end)
		if end.err != nil {
			bad = append(bad, end)
			continue
		}
		used, erased = append(used, string(end.got.Method)), append(erased, end.id)
	}
	proof["seconds"] = fmt.Sprintf("%.1f", e.cfg.Clock.Now().Sub(begun).Seconds())
	if len(bad) > 0 {
		return concluded(ctx, bad, erased, proof)
	}
	proof[evidence.EraseMethod] = strings.Join(used, ",")
	return executor.Succeeded(proof), nil
}

// ending is what became of one disk.
type ending struct {
	id  string
	got erase.Evidence
	err error
}

func (e *Executor) eraseAll(ctx context.Context, job executor.Job, in intent) []ending {
	ends, percents := make([]ending, len(in.Disks)), make([]int, len(in.Disks))
	var mu sync.Mutex // of percents, and one report at a time
	g, _ := task.New(ctx)
	for i, ref := range in.Disks {
		id := ref.ID
		g.Go("erase "+id, func(context.Context) error {
			job.Logf("erasing disk %s (%s)", id, in.Method)
			// Not the group's context: the end of one disk is none of the others'.
			got, err := e.cfg.Machine.EraseDisk(ctx, job.Effect(), ref, in.Method, func(percent int, what string) {
				mu.Lock()
				defer mu.Unlock()
				percents[i] = percent
				sum := 0
				for _, p := range percents {
					sum += p
				}
				job.Progress(sum/len(percents), fmt.Sprintf("disk %d/%d: %s", i+1, len(in.Disks), what))
			})
			if err == nil {
				job.Logf("erased disk %s by %s: %s", id, howOf(got), got.Verification)
			} else {
				job.Logf("disk %s is not erased: %v", id, err)
			}
			ends[i] = ending{id, got, err}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		for i := range ends { // a panic, in one of them
			ends[i].id, ends[i].err = in.Disks[i].ID, errors.Join(ends[i].err, err)
		}
	}
	return ends
}

func howOf(e erase.Evidence) string {
	if e.Detail == "" {
		return string(e.Method)
	}
	return fmt.Sprintf("%s (%s)", e.Method, e.Detail)
}

func record(proof map[string]string, key func(string) string, end ending) {
	got := end.got
	proof[key(evidence.ErasedID)] = end.id
	if end.err != nil {
		proof[key(evidence.ErasedError)] = end.err.Error()
	} else {
		proof[key(evidence.ErasedMethod)] = howOf(got)
		proof[key(evidence.ErasedVerification)] = got.Verification
		proof[key(evidence.ErasedSeconds)] = fmt.Sprintf("%.1f", got.Took.Round(100*time.Millisecond).Seconds())
	}
	for what, list := range map[string][]string{
		evidence.ErasedNotUsed: got.Why, evidence.ErasedHidden: got.Hidden, evidence.ErasedNotes: got.Notes,
	} {
		if len(list) > 0 {
			proof[key(what)] = strings.Join(list, "; ")
		}
	}
}

// concluded makes a result of the disks that are not erased. The first decides on the reason, but for an interruption,
// which goes before all.
func concluded(ctx context.Context, bad []ending, erased []string, proof map[string]string) (executor.Result, error) {
	r, err := resultOf(ctx, bad[0])
	for _, end := range bad[1:] {
		other, otherErr := resultOf(ctx, end)
		if err != nil || otherErr != nil {
			return executor.Result{}, errors.Join(err, otherErr)
		}
		r.Message += "; " + other.Message
		r.Retryable = r.Retryable && other.Retryable
	}
	if err != nil {
		return r, err
	}
	if len(erased) > 0 {
		r.Message += "; erased are " + strings.Join(erased, ", ")
	}
	return r.WithEvidence(proof), nil
}

func resultOf(ctx context.Context, end ending) (executor.Result, error) {
	id, err := end.id, end.err
	if r, ok := executor.FromRefusal(err, baremetalv1.Reason_CAPABILITY_MISSING); ok {
		return r, nil
	}
	var no *disk.NoUniqueMatch
	switch {
	case errors.As(err, &no):
		return executor.Failed(baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH, "disk %s: %v", id, no), nil
	case errors.Is(err, executor.ErrCanceled):
		return executor.Canceled("stopped; disk %s may be erased in part", id), nil
	case errors.Is(err, executor.ErrTimeout):
		return executor.Failed(baremetalv1.Reason_STEP_TIMEOUT, "the time was up; disk %s may be erased in part",
			id).AndRetry(), nil
	case executor.Interrupted(ctx):
		return executor.Result{}, executor.ErrInterrupted
	case errors.Is(err, erase.ErrUnsupported):
		return executor.Failed(baremetalv1.Reason_ERASE_UNSUPPORTED, "disk %s: %v", id, err), nil
	case errors.Is(err, erase.ErrNotErased):
		return executor.Failed(baremetalv1.Reason_EVIDENCE_MISSING, "disk %s: %v", id, err).AndRetry(), nil
	}
	return executor.Failed(baremetalv1.Reason_DISK_WRITE_ERROR, "disk %s: %v", id, err).AndRetry(), nil
}

// Resume knows of nothing that was verified before a restart: another attempt erases again, which does no harm.
func (e *Executor) Resume(context.Context, executor.Job) (executor.Verdict, error) {
	return executor.Settle(executor.Failed(baremetalv1.Reason_EXECUTION_FAILED,
		"the agent was restarted during the erasure; disks may be erased in part").AndRetry()), nil
}
