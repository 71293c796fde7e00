package repave_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/executortest"
	"github.com/ingot-metal/ingot/agent/executor/repave"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/disk"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// TestPreflightRefusesWhatARepaveWould: the same order is refused for the same reason by both, and a preflight has not
// written by then, nor when it succeeds.
func TestPreflightRefusesWhatARepaveWould(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change    func(r *rig, a *fleetv1.RepaveAction)
		want      baremetalv1.Reason
		retryable bool
	}{
		"all is well": {func(*rig, *fleetv1.RepaveAction) {}, 0, false},
		"no digest": {func(_ *rig, a *fleetv1.RepaveAction) { a.Sha256Raw = "" }, baremetalv1.Reason_INVALID_FIELD,
			false},
		"another architecture": {func(_ *rig, a *fleetv1.RepaveAction) { a.Arch = "not-" + runtime.GOARCH },
			baremetalv1.Reason_IMAGE_UNSUPPORTED, false},
		"another firmware": {func(r *rig, a *fleetv1.RepaveAction) { r.m.firmware, a.Firmware = "bios", []string{"uefi"} },
			baremetalv1.Reason_IMAGE_UNSUPPORTED, false},
		"no unique disk": {func(r *rig, _ *fleetv1.RepaveAction) { r.m.choose = &disk.NoUniqueMatch{} },
			baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH, false},
		"disk too small": {func(r *rig, _ *fleetv1.RepaveAction) { r.m.dev.Size = 127 << 20 },
			baremetalv1.Reason_IMAGE_TOO_LARGE, false},
		"image damaged": {func(r *rig, _ *fleetv1.RepaveAction) {
			r.m.probe = &image.Error{Reason: baremetalv1.Reason_IMAGE_DIGEST_MISMATCH}
		}, baremetalv1.Reason_IMAGE_DIGEST_MISMATCH, false},
		"a seed for another kind of image": {func(r *rig, a *fleetv1.RepaveAction) {
			a.SeedIgnition, a.SeedUnfit = true, "why"
			r.m.probe = &image.Error{Reason: baremetalv1.Reason_INVALID_FIELD}
		}, baremetalv1.Reason_INVALID_FIELD, false},
		"image away": {func(r *rig, _ *fleetv1.RepaveAction) {
			r.m.probe = &image.Error{Reason: baremetalv1.Reason_IMAGE_UNAVAILABLE, Retryable: true}
		}, baremetalv1.Reason_IMAGE_UNAVAILABLE, true},
		"not explained": {func(r *rig, _ *fleetv1.RepaveAction) { r.m.probe = errors.New("broken") },
			baremetalv1.Reason_IMAGE_UNAVAILABLE, true},
		"canceled": {func(r *rig, _ *fleetv1.RepaveAction) { r.m.probe = executor.ErrCanceled },
			baremetalv1.Reason_CANCELED_BY_REQUEST, false},
		"not an installer": {func(r *rig, _ *fleetv1.RepaveAction) {
			r.m.choose = &effect.Refusal{Kind: effect.ErrUnsupported}
		},
			baremetalv1.Reason_CAPABILITY_MISSING, false},
	} {
		r := newRig()
		a := r.spec.GetRepave()
		c.change(r, a)
		exec := repave.NewPreflight(repave.DiskConfig{Installer: r.m, Site: "http://site:8080"})
		job := r.job(t.Context())
		job.Spec = &fleetv1.CommandSpec{CommandId: "cmd-0", Action: &fleetv1.CommandSpec_Preflight{Preflight: a}}
		got, err := exec.Execute(t.Context(), job)
		if err != nil || got.Reason != c.want || got.Retryable != c.retryable || r.m.writes != 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if r.m.asked.Seed.Ignition != a.GetSeedIgnition() || r.m.asked.Seed.Unfit != a.GetSeedUnfit() {
			t.Errorf("%s: asked for a seed %+v", name, r.m.asked.Seed)
		}
		if r.m.probe != nil {
			continue // only the preflight reads the image before the grant
		}
		if settled := r.prepare(t); (settled == nil) != (c.want == 0) || settled != nil && settled.Reason != c.want {
			t.Errorf("%s: the repave says %+v", name, settled)
		}
		if c.want == 0 && (got.Evidence[evidence.PreflightDisk] != "S1" || r.m.asked.URL != "http://site:8080/blob/"+
			strings.Repeat("b", 64)) {
			t.Errorf("%s: %v from %s", name, got.Evidence, r.m.asked.URL)
		}
	}
}

func TestKilledAtEachEffectOfAPreflight(t *testing.T) {
	t.Parallel()
	executortest.Run(t, repave.PreflightDeclaration, func(*testing.T) executortest.World {
		r := newRig()
		return executortest.World{
			Spec: &fleetv1.CommandSpec{
				CommandId: "cmd-0", Action: &fleetv1.CommandSpec_Preflight{Preflight: r.spec.GetRepave()},
			},
			Executor: func() executor.Executor {
				return repave.NewPreflight(repave.DiskConfig{Installer: r.m, Site: "http://site:8080"})
			},
			Effects: func() int { return r.m.writes },
		}
	})
}
