package repave_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/agent/host/disks"
	"github.com/ingot-metal/ingot/internal/disk"
	"github.com/ingot-metal/ingot/internal/evidence"
)

func mirrorRig() *rig {
	r := newRig()
	r.spec.GetRepave().MirrorRule = "serial=S2"
	r.m.second = disk.Device{Path: "/dev/sdb", Serial: "S2", Size: 1 << 30, Seqs: []uint64{7}}
	return r
}

// TestAMirrorNamesBothDisks: the order that is carried out, the evidence, and the check after a restart.
func TestAMirrorNamesBothDisks(t *testing.T) {
	t.Parallel()
	r := mirrorRig()
	r.prepare(t)
	var asked disks.WriteImage
	r.m.write = func(ctx context.Context, w disks.WriteImage) error {
		asked = w
		return whole(ctx, w)
	}
	got, err := r.exec.Execute(t.Context(), r.job(t.Context()))
	if err != nil || got.Outcome != fleetv1.CommandResult_SUCCEEDED || got.Evidence[evidence.MirrorDisk] != "S2" ||
		got.Evidence["disk"] != "S1" {
		t.Errorf("%+v, %v", got, err)
	}
	if asked.MirrorRule != "serial=S2" || asked.Mirror.ID != "S2" || asked.Mirror.Seqs[0] != 7 || asked.Disk.ID != "S1" {
		t.Errorf("asked for %+v", asked)
	}
	v, err := r.exec.Resume(t.Context(), r.job(t.Context()))
	if err != nil || v.Settled == nil || v.Settled.Evidence[evidence.MirrorDisk] != "S2" || r.m.asked.Mirror.ID != "S2" {
		t.Errorf("%+v, %v: checked %+v", v.Settled, err, r.m.asked)
	}
}

// TestAFailedWriteNamesBothDisksOfAMirror: an operator has to look at both.
func TestAFailedWriteNamesBothDisksOfAMirror(t *testing.T) {
	t.Parallel()
	r := mirrorRig()
	r.prepare(t)
	r.m.write = func(context.Context, disks.WriteImage) error {
		return &image.Error{Reason: baremetalv1.Reason_DISK_WRITE_ERROR}
	}
	got, err := r.exec.Execute(t.Context(), r.job(t.Context()))
	if err != nil || !strings.Contains(got.Message, "disk S1 and its mirror S2") {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestDataDisksAreInTheOrderAndInTheEvidence, also of a commit that is found after a restart.
func TestDataDisksAreInTheOrderAndInTheEvidence(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.spec.GetRepave().DataDisks = []string{"/srv serial=D"}
	mounts := []firstboot.Mount{{Path: "/srv", Disk: "D", PartID: "p-9", Made: true}}
	r.m.evidence = image.Evidence{Mounts: mounts}
	r.m.write = func(ctx context.Context, w disks.WriteImage) error {
		if len(w.Data) != 1 || w.Data[0] != "/srv serial=D" {
			t.Errorf("asked for %q", w.Data)
		}
		return errors.Join(w.Begin(ctx), w.Committing(ctx, image.Commit{Head: "h", Mounts: mounts}))
	}
	r.prepare(t)
	const want = `[{"path":"/srv","disk":"D","partuuid":"p-9","made":true}]`
	got, err := r.exec.Execute(t.Context(), r.job(t.Context()))
	if err != nil || got.Evidence[evidence.DataDisks] != want {
		t.Errorf("%+v, %v", got, err)
	}
	v, err := r.exec.Resume(t.Context(), r.job(t.Context()))
	if err != nil || v.Settled == nil || v.Settled.Evidence[evidence.DataDisks] != want {
		t.Errorf("%+v, %v", v.Settled, err)
	}
}

// TestDisksThatMakeNoMirrorAreRefused before anything is written.
func TestDisksThatMakeNoMirrorAreRefused(t *testing.T) {
	t.Parallel()
	r := mirrorRig()
	r.m.second.Sector = 4096
	refused := r.prepare(t)
	if refused == nil || refused.Reason != baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH ||
		!strings.Contains(refused.Message, "sectors") {
		t.Errorf("%+v", refused)
	}
}
