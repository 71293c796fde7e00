package testhardware_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/executortest"
	"github.com/ingot-metal/ingot/agent/executor/testhardware"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/hwtest"
	"github.com/ingot-metal/ingot/internal/evidence"
)

const boot = "1e2fa3d2-6b0a-4b36-9f28-6a9c4d0a7a11"

// machine makes the files of a machine with one disk, of which so much can be read.
func machine(t *testing.T, readable int) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range map[string]string{
		"proc/sys/kernel/random/boot_id": boot + "\n", "sys/class/dmi/id/sys_vendor": "Acme\n",
		"sys/class/dmi/id/product_name": "R1\n", "sys/block/sda/size": "16384\n", "sys/block/sda/device/model": "M\n",
		"sys/block/sda/serial": "S1\n", "dev/sda": strings.Repeat("x", readable),
	} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func job(t *testing.T, e *testhardware.Executor) executor.Job {
	t.Helper()
	spec := &fleetv1.CommandSpec{Action: &fleetv1.CommandSpec_TestHardware{TestHardware: &fleetv1.TestHardwareAction{
		Tests: []string{"disk"}, DurationMs: 200, MemoryPercent: 1, DiskBytes: 1 << 20}}}
	in, settled, err := e.Prepare(t.Context(), spec)
	if err != nil || settled != nil {
		t.Fatalf("prepare: %v %v", settled, err)
	}
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return executor.Job{Spec: spec, Intent: raw, Progress: func(int, string) {}, Logf: t.Logf}
}

func TestWhatIsFoundIsTheEvidence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		readable int
		outcome  fleetv1.CommandResult_Outcome
		reason   baremetalv1.Reason
		message  string
	}{
		"a disk that can be read":        {8 << 20, fleetv1.CommandResult_SUCCEEDED, 0, ""},
		"a disk that ends in its middle": {0, fleetv1.CommandResult_FAILED, baremetalv1.Reason_HARDWARE_TEST_FAILED, "disk S1: read at byte"},
	} {
		root := machine(t, c.readable)
		e := testhardware.New(host.New(host.Config{Root: root}))
		before, err := os.ReadFile(filepath.Join(root, "dev/sda"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := e.Execute(t.Context(), job(t, e))
		if err != nil || r.Outcome != c.outcome || r.Reason != c.reason || !strings.Contains(r.Message, c.message) ||
			r.Retryable {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		var found []evidence.HardwareResult
		if err := json.Unmarshal([]byte(r.Evidence[evidence.HardwareTests]), &found); err != nil || len(found) == 0 ||
			r.Evidence[evidence.HardwareModel] != "Acme R1" {
			t.Errorf("%s: evidence %v, %v", name, r.Evidence, err)
		}
		for _, f := range found {
			if f.Test != "disk" || f.Part != "S1" || f.Class != "M" {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if after, err := os.ReadFile(filepath.Join(root, "dev/sda")); err != nil || string(after) != string(before) {
			t.Errorf("%s: the disk holds something else since, %v", name, err)
		}
	}
}

// slow is a machine whose test ends with its context.
type slow struct {
	*host.Linux

	begun chan struct{}
}

func (s slow) TestHardware(ctx context.Context, _ hwtest.Config) (hwtest.Report, error) {
	close(s.begun)
	<-ctx.Done()
	return hwtest.Report{Results: []hwtest.Result{{Test: "cpu", Verdict: hwtest.Passed}}}, nil
}

// What ends a test before its time leaves no results: half a test is none.
func TestHalfATestIsNone(t *testing.T) {
	t.Parallel()
	for cause, want := range map[error]struct {
		outcome   fleetv1.CommandResult_Outcome
		reason    baremetalv1.Reason
		retryable bool
		err       error
	}{
		executor.ErrCanceled: {fleetv1.CommandResult_CANCELED, baremetalv1.Reason_CANCELED_BY_REQUEST, false, nil},
		executor.ErrTimeout:  {fleetv1.CommandResult_FAILED, baremetalv1.Reason_STEP_TIMEOUT, true, nil},
		executor.ErrShutdown: {err: executor.ErrInterrupted},
	} {
		m := slow{host.New(host.Config{Root: machine(t, 1<<20)}), make(chan struct{})}
		e := testhardware.New(m)
		ctx, stop := context.WithCancelCause(t.Context())
		go func() {
			<-m.begun
			stop(cause)
		}()
		r, err := e.Execute(ctx, job(t, e))
		if !errors.Is(err, want.err) || r.Outcome != want.outcome || r.Reason != want.reason ||
			r.Retryable != want.retryable ||
			r.Evidence != nil {
			t.Errorf("%v: %+v, %v", cause, r, err)
		}
	}
}

// A restart of the agent is no sign of bad hardware. One of the machine may be, so that the test is not repeated
// without an order.
func TestAfterARestart(t *testing.T) {
	t.Parallel()
	root := machine(t, 1<<20)
	e := testhardware.New(host.New(host.Config{Root: root}))
	j := job(t, e)
	v, err := e.Resume(t.Context(), j)
	if err != nil || v.GoOn || v.Settled.Reason != baremetalv1.Reason_HARDWARE_TEST_UNFINISHED || !v.Settled.Retryable {
		t.Errorf("the same boot: %+v, %v", v.Settled, err)
	}
	another := strings.Replace(boot, "1e2f", "2e2f", 1)
	if err := os.WriteFile(
		filepath.Join(root, "proc/sys/kernel/random/boot_id"),
		[]byte(another+"\n"),
		0o644,
	); err != nil {
		t.Fatal(err)
	}
	v, err = e.Resume(t.Context(), j)
	if err != nil || v.GoOn || v.Settled.Reason != baremetalv1.Reason_HARDWARE_TEST_UNFINISHED || v.Settled.Retryable ||
		!strings.Contains(v.Settled.Message, "restarted") {
		t.Errorf("another boot: %+v, %v", v.Settled, err)
	}
}

// The test ends in bounded time, whatever was asked.
func TestItEndsInItsTime(t *testing.T) {
	t.Parallel()
	e := testhardware.New(host.New(host.Config{Root: machine(t, 8<<20)}))
	j := job(t, e)
	j.Spec.GetTestHardware().DiskBytes = 1 << 50
	began := time.Now()
	if r, err := e.Execute(t.Context(), j); err != nil || r.Outcome != fleetv1.CommandResult_SUCCEEDED {
		t.Errorf("%+v, %v", r, err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("200 ms of tests took %v", took)
	}
}

// ordered is a machine that records the test it is sent, and returns the answers of the case.
type ordered struct {
	boot     string
	identity error
	found    hwtest.Report
	err      error
	order    hwtest.Config
}

func (m *ordered) Identity(context.Context) (host.Identity, error) {
	return host.Identity{BootID: m.boot}, m.identity
}

func (m *ordered) TestHardware(_ context.Context, cfg hwtest.Config) (hwtest.Report, error) {
	m.order = cfg
	return m.found, m.err
}

// TestTheOrderIsCarriedOut: the machine is asked for the tests, the time and the parts that the command names, and its
// results are in the operation's log, a line each.
func TestTheOrderIsCarriedOut(t *testing.T) {
	t.Parallel()
	m := &ordered{boot: "b-1", found: hwtest.Report{Model: "Acme R1", Results: []hwtest.Result{
		{Test: "cpu", Verdict: hwtest.Passed},
		{Test: "disk", Part: "S1", Class: "M", Verdict: hwtest.Passed, Figure: 512.25, Unit: "MiB/s", Detail: "cold"},
	}}}
	e := testhardware.New(m)
	j := job(t, e)
	j.Spec.Action = &fleetv1.CommandSpec_TestHardware{TestHardware: &fleetv1.TestHardwareAction{
		Tests: []string{"cpu", "disk"}, DurationMs: 90_000, MemoryPercent: 40, DiskBytes: 7 << 20,
	}}
	shown, lines := 0, []string(nil)
	j.Progress = func(percent int, _ string) { shown = percent }
	j.Logf = func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	r, err := e.Execute(t.Context(), j)
	if err != nil || r.Outcome != fleetv1.CommandResult_SUCCEEDED || r.Evidence[evidence.HardwareModel] != "Acme R1" {
		t.Fatalf("%+v, %v", r, err)
	}
	got := m.order
	if !slices.Equal(got.Tests, []string{"cpu", "disk"}) || got.For != 90*time.Second || got.Share != 0.4 ||
		got.DiskBytes != 7<<20 || got.Progress == nil {
		t.Errorf("the machine was asked for %+v", got)
	} else if got.Progress(30, "x"); shown != 30 {
		t.Errorf("the progress shown is %d", shown)
	}
	if want := []string{"passed cpu", "passed disk S1 512.2 MiB/s: cold"}; !slices.Equal(lines, want) {
		t.Errorf("the log has %q, want %q", lines, want)
	}
	var found []evidence.HardwareResult
	if err := json.Unmarshal([]byte(r.Evidence[evidence.HardwareTests]), &found); err != nil ||
		!slices.Equal(found, m.found.Results) {
		t.Errorf("the evidence is %v, %v", found, err)
	}
}

// TestWhatCannotBeTested: a machine that does not answer is a failure that may be tried again. What cannot be read or
// stored is no result.
func TestWhatCannotBeTested(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	m := &ordered{boot: "b-1", err: broken}
	e := testhardware.New(m)
	j := job(t, e)
	if r, err := e.Execute(t.Context(), j); err != nil || r.Outcome != fleetv1.CommandResult_FAILED || !r.Retryable ||
		r.Reason != baremetalv1.Reason_EXECUTION_FAILED || !strings.Contains(r.Message, "broken") || r.Evidence != nil {
		t.Errorf("a test that cannot be made: %+v, %v", r, err)
	}
	m.err, m.found.Results = nil, []hwtest.Result{{Test: "cpu", Verdict: hwtest.Passed, Figure: math.NaN()}}
	if r, err := e.Execute(t.Context(), j); err == nil || r.Evidence != nil {
		t.Errorf("a figure that is no number: %+v, %v", r, err)
	}
	m.identity = broken
	if in, settled, err := e.Prepare(t.Context(), j.Spec); !errors.Is(err, broken) || in != nil || settled != nil {
		t.Errorf("prepared without a boot id: %v, %v, %v", in, settled, err)
	}
	if v, err := e.Resume(t.Context(), j); !errors.Is(err, broken) || v.GoOn || v.Settled != nil {
		t.Errorf("resumed without a boot id: %+v, %v", v, err)
	}
	m.identity, j.Intent = nil, []byte("no intent")
	if v, err := e.Resume(t.Context(), j); err == nil || v.GoOn || v.Settled != nil {
		t.Errorf("resumed without an intent: %+v, %v", v, err)
	}
}

// counted is a machine that counts the tests of its hardware.
type counted struct {
	*host.Linux
	tests int
}

func (m *counted) TestHardware(ctx context.Context, cfg hwtest.Config) (hwtest.Report, error) {
	m.tests++
	return m.Linux.TestHardware(ctx, cfg)
}

func TestKilledAtEachEffect(t *testing.T) {
	t.Parallel()
	executortest.Run(t, testhardware.Declaration, func(t *testing.T) executortest.World {
		m := &counted{Linux: host.New(host.Config{Root: machine(t, 8<<20)})}
		return executortest.World{
			Spec: &fleetv1.CommandSpec{CommandId: "c-1", Action: &fleetv1.CommandSpec_TestHardware{
				TestHardware: &fleetv1.TestHardwareAction{
					Tests: []string{"disk"}, DurationMs: 200, MemoryPercent: 1, DiskBytes: 1 << 20,
				},
			}},
			Executor: func() executor.Executor { return testhardware.New(m) },
			Effects:  func() int { return m.tests }, Repeats: true, // a test changes nothing
		}
	})
}
