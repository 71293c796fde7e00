package resetdevices_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/executortest"
	"github.com/ingot-metal/ingot/agent/executor/resetdevices"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// device makes a PCI function in a sysfs of our own. Its reset is a file, into which the kernel would look.
func device(t *testing.T, root, address, class, vendor string, config string, resets bool) string {
	t.Helper()
	dir := filepath.Join(root, "sys/bus/pci/devices", address)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"class": "0x" + class + "\n", "vendor": "0x" + vendor + "\n", "device": "0x2330\n", "config": config,
		"reset_method": "flr bus\n",
	}
	if resets {
		files["reset"] = ""
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "reset")
}

func written(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func run(t *testing.T, root string) executor.Result {
	t.Helper()
	e, job := prepare(t, root)
	r, err := e.Execute(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func prepare(t *testing.T, root string) (*resetdevices.Executor, executor.Job) {
	t.Helper()
	e := resetdevices.New(host.New(host.Config{Root: root}))
	in, settled, err := e.Prepare(t.Context(), &fleetv1.CommandSpec{})
	if err != nil || settled != nil {
		t.Fatalf("prepare: %v %v", settled, err)
	}
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return e, executor.Job{
		Spec: &fleetv1.CommandSpec{}, Intent: raw, Progress: func(int, string) {}, Logf: func(string, ...any) {},
	}
}

const nvidia = "\xde\x10\x30\x23"

// Accelerators are reset through the kernel, and the evidence has each device and its method; a server's display chip
// is left alone.
func TestAcceleratorsAreResetAndDisplayChipsAreNot(t *testing.T) {
	root := t.TempDir()
	gpu := device(t, root, "0000:3b:00.0", "030200", "10de", nvidia, true)
	other := device(t, root, "0000:5e:00.0", "120000", "10de", nvidia, true)
	display := device(t, root, "0000:03:00.0", "030000", "1a03", "\x03\x1a", true)
	r := run(t, root)
	if r.Outcome != fleetv1.CommandResult_SUCCEEDED || r.Evidence[evidence.DevicesReset] != "0000:3b:00.0,0000:5e:00.0" {
		t.Fatalf("%+v", r)
	}
	if !strings.Contains(r.Evidence["device_0"], "flr bus") {
		t.Errorf("the evidence does not say how: %v", r.Evidence)
	}
	if written(t, gpu) != "1" || written(t, other) != "1" || written(t, display) != "" {
		t.Errorf("reset %q %q, and the display chip %q", written(t, gpu), written(t, other), written(t, display))
	}
}

// What cannot be reset, or does not answer afterwards, is a failure with that reason.
func TestADeviceThatCannotBeResetFails(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		resets bool
		retry  bool
	}{
		"the kernel has no reset": {nvidia, false, false}, "gone after the reset": {"\xff\xff\xff\xff", true, true},
	} {
		root := t.TempDir()
		device(t, root, "0000:3b:00.0", "030200", "10de", c.config, c.resets)
		r := run(t, root)
		if r.Outcome != fleetv1.CommandResult_FAILED || r.Reason != baremetalv1.Reason_DEVICE_RESET_FAILED ||
			r.Retryable != c.retry ||
			r.Evidence[evidence.DevicesReset] != "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestAMachineWithoutAcceleratorsSaysSo(t *testing.T) {
	root := t.TempDir()
	device(t, root, "0000:03:00.0", "030000", "1a03", "\x03\x1a", true)
	if r := run(t, root); r.Outcome != fleetv1.CommandResult_SUCCEEDED ||
		!strings.HasPrefix(r.Evidence[evidence.DevicesReset], "none") {
		t.Errorf("%+v", r)
	}
}

// twoAccelerators have a working reset each; the second one's configuration space is as given.
func twoAccelerators(t *testing.T, config string) (root, first, second string) {
	t.Helper()
	root = t.TempDir()
	first = device(t, root, "0000:3b:00.0", "030200", "10de", nvidia, true)
	second = device(t, root, "0000:5e:00.0", "120000", "10de", config, true)
	return root, first, second
}

func TestProgressAndASingleDeviceAreNamed(t *testing.T) {
	root, _, _ := twoAccelerators(t, nvidia)
	e, job := prepare(t, root)
	var said []string
	job.Progress = func(percent int, what string) { said = append(said, fmt.Sprint(percent, " ", what)) }
	if r, err := e.Execute(t.Context(), job); err != nil ||
		strings.Join(said, ", ") != "50 0000:3b:00.0, 100 0000:5e:00.0" {
		t.Errorf("%q %+v %v", said, r, err)
	}
	root = t.TempDir()
	device(t, root, "0000:3b:00.0", "030200", "10de", nvidia, true)
	if r := run(t, root); r.Evidence[evidence.DevicesReset] != "0000:3b:00.0" {
		t.Errorf("one device: %+v", r)
	}
}

// What was reset before a failure is known, and said.
func TestAFailureSaysWhatWasResetBefore(t *testing.T) {
	root, first, _ := twoAccelerators(t, "\xff\xff\xff\xff")
	r := run(t, root)
	if r.Outcome != fleetv1.CommandResult_FAILED || written(t, first) != "1" ||
		r.Evidence["devices_reset_before"] != "0000:3b:00.0" ||
		!strings.HasPrefix(r.Evidence["device_0"], "0000:3b:00.0") {
		t.Errorf("%+v", r)
	}
}

// A reset is not cut short: whatever stops the command stops it between two devices.
func TestItStopsBetweenDevices(t *testing.T) {
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
		root, first, second := twoAccelerators(t, nvidia)
		e, job := prepare(t, root)
		ctx, stop := context.WithCancelCause(t.Context())
		job.Progress = func(int, string) { stop(cause) }
		r, err := e.Execute(ctx, job)
		if !errors.Is(err, want.err) || r.Outcome != want.outcome || r.Reason != want.reason ||
			r.Retryable != want.retryable {
			t.Errorf("%v: %+v, %v", cause, r, err)
		}
		if written(t, first) != "1" || written(t, second) != "" {
			t.Errorf("%v: reset %q and %q", cause, written(t, first), written(t, second))
		}
	}
}

func TestNothingIsResetWithoutLeave(t *testing.T) {
	no := executor.Refused(baremetalv1.Reason_GRANT_REFUSED, "no")
	for name, c := range map[string]struct {
		r       *executor.Result
		err     error
		outcome fleetv1.CommandResult_Outcome
	}{
		"refused":   {&no, nil, fleetv1.CommandResult_REFUSED},
		"no answer": {nil, errors.New("cut"), fleetv1.CommandResult_FAILED},
	} {
		root, first, _ := twoAccelerators(t, nvidia)
		e, job := prepare(t, root)
		job.Leave = func(context.Context) (*executor.Result, error) { return c.r, c.err }
		if r, err := e.Execute(t.Context(), job); err != nil || r.Outcome != c.outcome || written(t, first) != "" {
			t.Errorf("%s: %+v, %v, reset %q", name, r, err, written(t, first))
		}
	}
}

func TestWhatCannotBeReadIsNoResult(t *testing.T) {
	root, first, _ := twoAccelerators(t, nvidia)
	e, job := prepare(t, root)
	job.Intent = job.Intent[:len(job.Intent)-1]
	if r, err := e.Execute(t.Context(), job); err == nil || written(t, first) != "" {
		t.Errorf("half an intent: %+v", r)
	}
	if err := os.Remove(filepath.Join(filepath.Dir(first), "class")); err != nil {
		t.Fatal(err)
	}
	if in, settled, err := e.Prepare(t.Context(), &fleetv1.CommandSpec{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a bus that cannot be read: %v %+v %v", in, settled, err)
	}
}

func TestAResetIsNotResumed(t *testing.T) {
	root, first, _ := twoAccelerators(t, nvidia)
	e, job := prepare(t, root)
	v, err := e.Resume(t.Context(), job)
	if err != nil || v.GoOn || v.Settled == nil || v.Settled.Outcome != fleetv1.CommandResult_FAILED ||
		!v.Settled.Retryable || written(t, first) != "" {
		t.Errorf("%+v %v", v, err)
	}
}

// counted is a machine that counts the resets of its devices.
type counted struct {
	*host.Linux
	resets int
}

func (m *counted) ResetDevice(ctx context.Context, e effect.Cause, d host.Accelerator) (string, error) {
	m.resets++
	return m.Linux.ResetDevice(ctx, e, d)
}

func TestKilledAtEachEffect(t *testing.T) {
	executortest.Run(t, resetdevices.Declaration, func(t *testing.T) executortest.World {
		root := t.TempDir()
		device(t, root, "0000:3b:00.0", "030200", "10de", nvidia, true)
		device(t, root, "0000:5e:00.0", "120000", "10de", nvidia, true)
		m := &counted{Linux: host.New(host.Config{Root: root})}
		return executortest.World{
			Spec: &fleetv1.CommandSpec{
				CommandId: "c-1", Action: &fleetv1.CommandSpec_ResetDevices{ResetDevices: &fleetv1.ResetDevicesAction{}},
			},
			Executor: func() executor.Executor { return resetdevices.New(m) },
			Effects:  func() int { return m.resets }, Whole: 2,
		}
	})
}
