package erase_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/command"
	executor "github.com/ingot-metal/ingot/agent/command/erase"
	"github.com/ingot-metal/ingot/agent/disk/erase"
	"github.com/ingot-metal/ingot/agent/host"
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
}

func (m *machine) DisksToErase(string, []string) ([]disk.Device, error) { return m.disks, m.choose }

func (m *machine) EraseDisk(_ context.Context, _ host.Effect, id string, method erase.Method, progress func(int, string)) (erase.Evidence, error) {
	m.erased = append(m.erased, id)
	progress(50, "half")
	return erase.Evidence{Method: method, Detail: "d", Verification: "read " + id, Why: []string{"x: no"}}, m.fail[id]
}

func twoDisks() *machine {
	return &machine{disks: []disk.Device{{Serial: "A"}, {Serial: "B"}}, fail: map[string]error{}}
}

func spec(method string) *fleetv1.CommandSpec {
	return &fleetv1.CommandSpec{Action: &fleetv1.CommandSpec_Erase{Erase: &fleetv1.EraseAction{Method: method}}}
}

func run(t *testing.T, m *machine) (command.Result, []string) {
	t.Helper()
	e := executor.New(executor.Config{Machine: m, Clock: clock.Real()})
	intent, settled, err := e.Prepare(t.Context(), spec("overwrite"))
	if err != nil {
		t.Fatal(err)
	}
	if settled != nil {
		return *settled, nil
	}
	b, err := json.Marshal(intent)
	if err != nil {
		t.Fatal(err)
	}
	var progress []string
	r, err := e.Execute(t.Context(), command.Job{
		Spec: spec("overwrite"), Intent: b, Hard: t.Context(), Logf: func(string, ...any) {},
		Progress: func(p int, s string) { progress = append(progress, fmt.Sprint(p, " ", s)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, progress
}

func TestEraseNamesEveryDiskAndMethod(t *testing.T) {
	t.Parallel()
	got, progress := run(t, twoDisks())
	if got.Outcome != fleetv1.CommandResult_SUCCEEDED {
		t.Fatalf("%+v", got)
	}
	for key, want := range map[string]string{
		evidence.EraseMethod: "overwrite,overwrite", "disks": "A,B", "disk_0_id": "A", "disk_1_id": "B",
		"disk_1_method": "overwrite (d)", "disk_1_verification": "read B", "disk_0_not_used": "x: no",
	} {
		if got.Evidence[key] != want {
			t.Errorf("%s is %q, want %q", key, got.Evidence[key], want)
		}
	}
	if strings.Join(progress, ", ") != "25 disk 1/2: half, 75 disk 2/2: half" {
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
		"no disk":         {func(m *machine) { m.choose = &disk.NoUniqueMatch{} }, fleetv1.CommandResult_FAILED, baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH, false, 0},
		"bad rule":        {func(m *machine) { m.choose = &host.Refusal{Kind: host.ErrInvalid} }, fleetv1.CommandResult_FAILED, baremetalv1.Reason_INVALID_FIELD, false, 0},
		"unsupported":     {func(m *machine) { m.fail["A"] = erase.ErrUnsupported }, fleetv1.CommandResult_FAILED, baremetalv1.Reason_ERASE_UNSUPPORTED, false, 1},
		"in use":          {func(m *machine) { m.fail["A"] = &host.Refusal{Kind: host.ErrUnsupported} }, fleetv1.CommandResult_FAILED, baremetalv1.Reason_CAPABILITY_MISSING, false, 1},
		"data is left":    {func(m *machine) { m.fail["B"] = erase.ErrNotErased }, fleetv1.CommandResult_FAILED, baremetalv1.Reason_EVIDENCE_MISSING, true, 2},
		"disk is broken":  {func(m *machine) { m.fail["B"] = errors.New("i/o") }, fleetv1.CommandResult_FAILED, baremetalv1.Reason_DISK_WRITE_ERROR, true, 2},
		"canceled":        {func(m *machine) { m.fail["A"] = command.ErrCanceled }, fleetv1.CommandResult_CANCELED, baremetalv1.Reason_CANCELED_BY_REQUEST, false, 1},
		"the time was up": {func(m *machine) { m.fail["A"] = command.ErrTimeout }, fleetv1.CommandResult_FAILED, baremetalv1.Reason_STEP_TIMEOUT, true, 1},
	} {
		m := twoDisks()
		c.change(m)
		got, _ := run(t, m)
		if got.Outcome != c.outcome || got.Reason != c.reason || got.Retryable != c.retryable || len(m.erased) != c.erased {
			t.Errorf("%s: %+v, erased %v", name, got, m.erased)
		}
		if c.erased == 2 && !strings.Contains(got.Message, "disks before it are erased") {
			t.Errorf("%s: %q", name, got.Message)
		}
	}
}

func TestEraseIsNotResumed(t *testing.T) {
	t.Parallel()
	m := twoDisks()
	e := executor.New(executor.Config{Machine: m, Clock: clock.Real()})
	v, err := e.Resume(t.Context(), command.Job{})
	if err != nil || v.GoOn || v.Settled == nil || !v.Settled.Retryable || len(m.erased) != 0 {
		t.Errorf("%+v, %v", v, err)
	}
	if _, settled, err := e.Prepare(t.Context(), spec("hammer")); err != nil || settled.Reason != baremetalv1.Reason_INVALID_FIELD {
		t.Errorf("%+v, %v", settled, err)
	}
}
