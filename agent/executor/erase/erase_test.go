package erase_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/disk/erase"
	"github.com/ingot-metal/ingot/agent/executor"
	eraseexec "github.com/ingot-metal/ingot/agent/executor/erase"
	"github.com/ingot-metal/ingot/agent/executor/executortest"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/disk"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// machine has disks that are erased as told.
type machine struct {
	choose error
	disks  []disk.Device
	fail   map[string]error
	erased []string
	// plain are disks whose first method worked.
	plain map[string]bool
	clock *clock.Fake
	// waits keep a disk from ending.
	waits map[string]chan struct{}
	mu    sync.Mutex
}

const takes = 1500 * time.Millisecond

func (m *machine) DisksToErase(string, []string) ([]disk.Device, error) { return m.disks, m.choose }

func (m *machine) EraseDisk(
	_ context.Context, _ effect.Cause, ref disk.Ref, method erase.Method, progress func(int, string),
) (erase.Evidence, error) {
	id := ref.ID
	m.mu.Lock()
	m.erased = append(m.erased, id)
	m.mu.Unlock()
	progress(50, "half")
	if m.waits[id] != nil {
		<-m.waits[id]
	}
	if m.plain[id] {
		return erase.Evidence{Method: method, Verification: "read " + id, Took: takes}, m.fail[id]
	}
	return erase.Evidence{Method: method, Detail: "d", Verification: "read " + id, Why: []string{"x: no"}, Took: takes},
		m.fail[id]
}

func (m *machine) executor() *eraseexec.Executor {
	return eraseexec.New(eraseexec.Config{Machine: m, Clock: m.clock})
}

func twoDisks() *machine {
	return &machine{
		disks: []disk.Device{{Serial: "A"}, {Serial: "B"}}, fail: map[string]error{}, plain: map[string]bool{},
		clock: clock.NewFake(time.Unix(1, 0)),
	}
}

func spec(method string) *fleetv1.CommandSpec {
	return &fleetv1.CommandSpec{Action: &fleetv1.CommandSpec_Erase{Erase: &fleetv1.EraseAction{Method: method}}}
}

func run(t *testing.T, m *machine) (executor.Result, []string) {
	t.Helper()
	job, settled := prepare(t, m)
	if settled != nil {
		return *settled, nil
	}
	var progress []string
	job.Progress = func(p int, s string) { progress = append(progress, fmt.Sprint(p, " ", s)) }
	r, err := m.executor().Execute(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	return r, progress
}

func prepare(t *testing.T, m *machine) (executor.Job, *executor.Result) {
	t.Helper()
	intent, settled, err := m.executor().Prepare(t.Context(), spec("overwrite"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(intent)
	if err != nil {
		t.Fatal(err)
	}
	return executor.Job{
		Spec: spec("overwrite"), Intent: b, Hard: t.Context(), Logf: func(string, ...any) {}, Progress: func(int, string) {},
	}, settled
}

func TestEraseNamesEveryDiskAndMethod(t *testing.T) {
	t.Parallel()
	m := twoDisks()
	m.disks = append(m.disks, disk.Device{Serial: "C"})
	m.plain["C"] = true
	got, progress := run(t, m)
	if got.Outcome != fleetv1.CommandResult_SUCCEEDED {
		t.Fatalf("%+v", got)
	}
	for key, want := range map[string]string{
		evidence.EraseMethod: "overwrite,overwrite,overwrite", "disks": "A,B,C", "disk_0_id": "A", "disk_1_id": "B",
		"disk_1_method": "overwrite (d)", "disk_1_verification": "read B", "disk_0_not_used": "x: no",
		"disk_2_method": "overwrite", "disk_1_seconds": "1.5", "seconds": "0.0",
	} {
		if got.Evidence[key] != want {
			t.Errorf("%s is %q, want %q", key, got.Evidence[key], want)
		}
	}
	if why, ok := got.Evidence["disk_2_not_used"]; ok {
		t.Errorf("the first method worked, and %q was not used", why)
	}
	if len(progress) != 3 || !strings.HasPrefix(progress[2], "50 disk ") || !strings.HasPrefix(progress[0], "16 disk ") {
		t.Errorf("progress %q", progress)
	}
}

func TestEraseFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change    func(m *machine)
		outcome   fleetv1.CommandResult_Outcome
		reason    baremetalv1.Reason
		retryable bool
		erased    int
	}{
		"no disk": {func(m *machine) { m.choose = &disk.NoUniqueMatch{} }, fleetv1.CommandResult_FAILED,
			baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH, false, 0},
		"bad rule": {func(m *machine) { m.choose = &effect.Refusal{Kind: effect.ErrInvalid} },
			fleetv1.CommandResult_FAILED, baremetalv1.Reason_INVALID_FIELD, false, 0},
		"unsupported": {func(m *machine) { m.fail["A"] = erase.ErrUnsupported }, fleetv1.CommandResult_FAILED,
			baremetalv1.Reason_ERASE_UNSUPPORTED, false, 2},
		"in use": {func(m *machine) { m.fail["A"] = &effect.Refusal{Kind: effect.ErrUnsupported} },
			fleetv1.CommandResult_FAILED, baremetalv1.Reason_CAPABILITY_MISSING, false, 2},
		"data is left": {func(m *machine) { m.fail["B"] = erase.ErrNotErased }, fleetv1.CommandResult_FAILED,
			baremetalv1.Reason_EVIDENCE_MISSING, true, 2},
		"disk is broken": {func(m *machine) { m.fail["B"] = errors.New("i/o") }, fleetv1.CommandResult_FAILED,
			baremetalv1.Reason_DISK_WRITE_ERROR, true, 2},
		"canceled": {func(m *machine) { m.fail["A"] = executor.ErrCanceled }, fleetv1.CommandResult_CANCELED,
			baremetalv1.Reason_CANCELED_BY_REQUEST, false, 2},
		"the time was up": {func(m *machine) { m.fail["A"] = executor.ErrTimeout }, fleetv1.CommandResult_FAILED,
			baremetalv1.Reason_STEP_TIMEOUT, true, 2},
	} {
		m := twoDisks()
		c.change(m)
		got, _ := run(t, m)
		if got.Outcome != c.outcome || got.Reason != c.reason || got.Retryable != c.retryable || len(m.erased) != c.erased {
			t.Errorf("%s: %+v, erased %v", name, got, m.erased)
		}
		if strings.Contains(got.Message, "; erased are ") != (c.erased == 2) {
			t.Errorf("%s: %q", name, got.Message)
		}
	}
}

// TestADeadDiskDoesNotStopTheOthers: one disk ends with an error while another hangs, and the third is erased all the
// same.
func TestADeadDiskDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	m := twoDisks()
	m.disks = append(m.disks, disk.Device{Serial: "C"})
	m.fail["A"] = errors.New("i/o")
	hang := make(chan struct{})
	m.waits = map[string]chan struct{}{"B": hang}
	job, _ := prepare(t, m)
	var mu sync.Mutex
	job.Logf = func(format string, args ...any) {
		if line := fmt.Sprintf(format, args...); strings.HasPrefix(line, "erased disk C") {
			mu.Lock()
			defer mu.Unlock()
			close(hang) // only now may the second end
		}
	}
	got, err := m.executor().Execute(t.Context(), job)
	if err != nil || got.Reason != baremetalv1.Reason_DISK_WRITE_ERROR ||
		!strings.HasSuffix(got.Message, "; erased are B, C") {
		t.Errorf("%+v, %v", got, err)
	}
	if slices.Sort(m.erased); !slices.Equal(m.erased, []string{"A", "B", "C"}) || got.Evidence["disk_0_error"] == "" ||
		got.Evidence["disk_2_verification"] != "read C" {
		t.Errorf("%v, %v", m.erased, got.Evidence)
	}
}

// TestWhatWasTriedIsSaid: a failure names the methods that were not good enough, where there were any.
func TestWhatWasTriedIsSaid(t *testing.T) {
	t.Parallel()
	for plain, want := range map[bool]string{false: "x: no", true: ""} {
		m := twoDisks()
		m.fail["A"], m.plain["A"] = errors.New("i/o"), plain
		got, _ := run(t, m)
		if tried, ok := got.Evidence["disk_0_not_used"]; tried != want || ok == plain {
			t.Errorf("%q was tried: %v", tried, got.Evidence)
		}
	}
}

// TestNothingIsErasedWithoutLeave: neither a refusal nor silence is leave.
func TestNothingIsErasedWithoutLeave(t *testing.T) {
	t.Parallel()
	no := executor.Refused(baremetalv1.Reason_GRANT_REFUSED, "no")
	for name, c := range map[string]struct {
		r       *executor.Result
		err     error
		outcome fleetv1.CommandResult_Outcome
	}{
		"refused":   {&no, nil, fleetv1.CommandResult_REFUSED},
		"no answer": {nil, errors.New("cut"), fleetv1.CommandResult_FAILED},
	} {
		m := twoDisks()
		job, _ := prepare(t, m)
		job.Leave = func(context.Context) (*executor.Result, error) { return c.r, c.err }
		got, err := m.executor().Execute(t.Context(), job)
		if err != nil || got.Outcome != c.outcome || len(m.erased) != 0 {
			t.Errorf("%s: %+v, %v, erased %v", name, got, err, m.erased)
		}
	}
}

// TestNothingIsSaidOfWhatNobodyKnows: errors of the machine and of the agent's memory are no results.
func TestNothingIsSaidOfWhatNobodyKnows(t *testing.T) {
	t.Parallel()
	m := twoDisks()
	m.choose = errors.New("i/o")
	if _, settled, err := m.executor().Prepare(t.Context(), spec("overwrite")); !errors.Is(err, m.choose) ||
		settled != nil {
		t.Errorf("disks that cannot be listed: %+v, %v", settled, err)
	}
	m = twoDisks()
	job, _ := prepare(t, m)
	job.Intent = job.Intent[:len(job.Intent)-1]
	if got, err := m.executor().Execute(t.Context(), job); err == nil || len(m.erased) != 0 {
		t.Errorf("half an intent: %+v, erased %v", got, m.erased)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	job, _ = prepare(t, m)
	job.Progress = func(int, string) { stop(executor.ErrShutdown) }
	m.fail["A"] = context.Canceled
	if got, err := m.executor().Execute(ctx, job); !errors.Is(err, executor.ErrInterrupted) || len(m.erased) != 2 {
		t.Errorf("the agent stops: %+v, %v", got, err)
	}
}

func TestEraseIsNotResumed(t *testing.T) {
	t.Parallel()
	m := twoDisks()
	e := m.executor()
	v, err := e.Resume(t.Context(), executor.Job{})
	if err != nil || v.GoOn || v.Settled == nil || !v.Settled.Retryable || len(m.erased) != 0 {
		t.Errorf("%+v, %v", v, err)
	}
	if _, settled, err := e.Prepare(t.Context(), spec("hammer")); err != nil ||
		settled.Reason != baremetalv1.Reason_INVALID_FIELD {
		t.Errorf("%+v, %v", settled, err)
	}
}

func TestKilledAtEachEffect(t *testing.T) {
	t.Parallel()
	executortest.Run(t, eraseexec.Declaration, func(*testing.T) executortest.World {
		m := twoDisks()
		return executortest.World{
			Spec: spec("overwrite"), Executor: func() executor.Executor { return m.executor() },
			Effects: func() int { return len(m.erased) }, Whole: 2,
		}
	})
}
