package startcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/decider"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store/bootmedia"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/disk"
	"github.com/ingot-metal/ingot/internal/failure"
)

// catalogued refuses an image that the catalogue does not have, and a file of it that is no operating system. What it
// finds stays until the transaction has ended.
//
// A simulated machine has no disk. Where the catalogue has no operating system at all, such a machine takes any name,
// which is what demonstrations are made of; the answer names that.
func catalogued(
	ctx context.Context, q *dbsqlc.Queries, w World, steps []plan.Filled,
) (notAsked []string, err error) {
	m := w.Machine
	if s := plan.ByInstaller(steps); s != nil && m.Provider == workflow.ProviderMAAS {
		return nil, failure.Invalid("INVALID_FIELD",
			"step %s is done by our own installer, and machine %s is installed by MAAS", s.Step.GetName(), m.MachineID).
			WithField("plan_id", "for a machine of provider maas: plan "+plan.RepaveMAAS+
				", or one with steps of kind provider_action; to erase it, a decommission").
			WithMeta("machine_id", m.MachineID)
	}
	for _, f := range steps {
		if !repaves(f) {
			continue
		}
		ref := f.Step.GetRepave().GetImage()
		image, err := q.HoldImage(ctx, ref)
		switch {
		case err == nil && image.Kind == catalogstore.KindOS:
		case err == nil:
			return nil, notAnImage(ref, "it is a file of an installer ("+image.Kind+"), and no operating system")
		case !errors.Is(err, pgx.ErrNoRows):
			return nil, fmt.Errorf("read image: %w", err)
		default:
			anyName, err := takesAnyName(ctx, q, w)
			if err != nil {
				return nil, err
			}
			if !anyName {
				return nil, notAnImage(ref, "")
			}
			notAsked = append(notAsked, "step "+f.Step.GetName()+": the catalogue has no image at all, and a simulated "+
				"machine takes any name: no image "+ref+" exists")
		}
	}
	return notAsked, nil
}

func notAnImage(ref, why string) error {
	e := failure.NotFound("IMAGE_NOT_FOUND", "there is no image %q in the catalogue; see `ingot image list`", ref)
	if why != "" {
		e = failure.NotFound("IMAGE_NOT_FOUND", "%q is not an image that can be installed: %s; see `ingot image list`", ref,
			why)
	}
	return e.WithField("image_ref", "not in the catalogue")
}

// takesAnyName reports whether the machine has no real disk as far as is known, and no image could be named instead.
func takesAnyName(ctx context.Context, q *dbsqlc.Queries, w World) (bool, error) {
	if ours(w.Machine) && !w.Machine.Simulated && (w.Spec.GetBmcEndpoint() != "" || w.Machine.AgentID != nil) {
		return false, nil
	}
	images, err := q.ListImages(ctx, dbsqlc.ListImagesParams{Kind: catalogstore.KindOS, PageSize: 1})
	if err != nil {
		return false, fmt.Errorf("look for an image: %w", err)
	}
	return len(images) == 0, nil
}

// installable refuses work of the installer that cannot succeed, before the machine leaves its system: no path leads
// into the installer, or the inventory rules the image or the disk out.
func installable(ctx context.Context, q *dbsqlc.Queries, w World, steps []plan.Filled) error {
	i := slices.IndexFunc(steps, func(f plan.Filled) bool {
		return kind.Of(f.Kind).NeedsInstaller
	})
	if i < 0 || !OnMetal(w.Machine, w.Executors) || w.Spec.GetBmcEndpoint() == "" && w.Machine.AgentID == nil {
		return nil
	}
	candidates := Candidates(w.Machine, w.Spec, w.Executors, nil, fleet.AgentProvider)
	world := operation.World{Provider: fleet.AgentProvider, Candidates: candidates, Boot: BootOf(w.Boot)}
	path := plan.InstallerPath(steps[i].Step)
	refusal := decider.NoBootPath(world, path)
	var err error
	if refusal == nil {
		refusal, err = bootmedia.Refusal(ctx, q, w.Machine.Site, w.Spec, path)
	}
	if refusal == nil && err == nil {
		refusal, err = installerFits(ctx, q, w, steps)
	}
	if refusal == nil || err != nil {
		return err
	}
	e := failure.Precondition(refusal.Reason, "%s", refusal.Message).WithMeta("machine_id", w.Machine.MachineID).
		WithMeta("step", steps[i].Step.GetName())
	if n := slices.IndexFunc(steps, repaves); n >= 0 {
		e = e.WithMeta("image_ref", steps[n].Step.GetRepave().GetImage())
	}
	return e
}

// installerFits compares what is known of the machine with the images that are written, and with the installers that
// the catalogue has.
func installerFits(
	ctx context.Context, q *dbsqlc.Queries, w World, steps []plan.Filled,
) (*fleet.Refusal, error) {
	for _, f := range steps {
		var refusal *fleet.Refusal
		var err error
		switch {
		case repaves(f):
			refusal, err = Unfit(ctx, q, w.Machine.MachineID, w.Spec, w.Executors, f.Step.GetRepave())
		case kind.Of(f.Kind).NeedsInstaller:
			var known disk.Machine
			if known, _, err = inventoryOf(ctx, q, w.Machine.MachineID); err == nil {
				refusal, err = catalogstore.NoInstallerFor(ctx, q, known.Arch)
			}
		}
		if refusal != nil || err != nil {
			return refusal, err
		}
	}
	return nil, nil
}

// inventoryOf returns the machine of the newest inventory, and when that was reported. Where there is none, or it
// cannot be read, both are zero.
func inventoryOf(ctx context.Context, q *dbsqlc.Queries, machineID string) (disk.Machine, time.Time, error) {
	inventory, err := q.LatestInventory(ctx, machineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return disk.Machine{}, time.Time{}, nil
	}
	if err != nil {
		return disk.Machine{}, time.Time{}, fmt.Errorf("read inventory: %w", err)
	}
	known, err := disk.MachineOf(inventory.Document)
	if err != nil {
		return disk.Machine{}, time.Time{}, nil //nolint:nilerr // a document that cannot be read is no evidence
	}
	return known, inventory.ReportedAt, nil
}

// Unfit returns why an image cannot be installed on the machine, by the inventory of the system that runs on it now;
// nil where that may be possible, or nothing is known.
func Unfit(
	ctx context.Context, q *dbsqlc.Queries, machineID string, spec *baremetalv1.MachineSpec,
	executors []dbsqlc.CandidatesForRow, r *baremetalv1.RepaveImage,
) (*fleet.Refusal, error) {
	image, err := q.ImageByRef(ctx, r.GetImage())
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read image: %w", err)
	}
	known, reported, err := inventoryOf(ctx, q, machineID)
	if err != nil {
		return nil, err
	}
	// The image is of the machine's architecture, or is refused; either way its own has no use without an installer.
	arch := pgtx.OrText(known.Arch, image.Arch)
	if missing, err := catalogstore.NoInstallerFor(ctx, q, arch); missing != nil || err != nil {
		return missing, err
	}
	live := slices.ContainsFunc(executors, func(c dbsqlc.CandidatesForRow) bool { return c.Role == "host" && c.Live })
	if reported.IsZero() || !live {
		return nil, nil // what was reported once may be out of date
	}
	why := disk.FitRules(known, disk.Image{
		Ref: image.ImageRef, Arch: image.Arch, Firmware: image.Firmware, RawSize: image.SizeBytes,
		MinimumDisk: image.MinimumDiskBytes,
	}, pgtx.OrText(r.GetDisk(), spec.GetInstallDisk()), pgtx.OrText(r.GetMirror(), spec.GetInstallMirror()),
		spec.GetProtectedDisks())
	if why == nil {
		return nil, nil
	}
	return &fleet.Refusal{Reason: why.Reason.String(), Message: fmt.Sprintf("%s, by its inventory of %s; %s", why.Message,
		reported.UTC().Format(time.RFC3339), nextStep[why.Reason])}, nil
}

// nextStep is what helps against each misfit.
var nextStep = map[baremetalv1.Reason]string{
	baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH: "see `ingot machine inventory`, and name one disk with `ingot machine " +
		"update --install-disk`",
	baremetalv1.Reason_IMAGE_TOO_LARGE: "name a larger disk with `ingot machine update --install-disk`, or take a " +
		"smaller image",
	baremetalv1.Reason_IMAGE_UNSUPPORTED: "take an image made for it; see `ingot image list`",
}
