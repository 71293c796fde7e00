package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/decider"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/store/bootmedia"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/disk"
	"github.com/ingot-metal/ingot/internal/failure"
)

// onMetal reports whether our own installer writes the disks of the machine: one of another provider, and a simulated
// one, has none to be written from.
func onMetal(m dbsqlc.Machine, executors []dbsqlc.CandidatesForRow) bool {
	ours := m.Provider == "" || m.Provider == fleet.AgentProvider
	return ours && !m.Simulated && !slices.ContainsFunc(executors, func(r dbsqlc.CandidatesForRow) bool {
		return r.Role == "host" && (r.Simulated || r.Live && slices.Contains(r.Capabilities, string(operation.KindRepave)))
	})
}

// installable refuses an installation that cannot succeed, before the machine leaves its system: no way leads into the
// installer, or the inventory rules the image or the disk rule out.
func (s *Store) installable(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest, steps []plan.Filled,
) error {
	i := slices.IndexFunc(steps, func(f plan.Filled) bool { return f.Kind == string(operation.KindRepave) })
	if i < 0 || !onMetal(m, nil) {
		return nil
	}
	spec, err := convert.SpecFromJSON(m.Spec)
	if err != nil || spec.GetBmcEndpoint() == "" && m.AgentID == nil {
		return err
	}
	f, err := metalFacts(ctx, q, m, r.begun, s.db.Now())
	if err != nil || !onMetal(m, f.executors[m.MachineID]) {
		return err
	}
	l := &OperationContext{Machine: m, spec: spec, executors: f.executors[m.MachineID]}
	w := operation.World{Provider: fleet.AgentProvider, Candidates: l.candidates(fleet.AgentProvider)}
	w.Boot.Segments, w.Boot.InstallerReady = int(f.boots[m.MachineID].Segments), f.boots[m.MachineID].Ready
	image := steps[i].Step.GetRepave()
	refusal := decider.NoBootPath(w, image.GetPath())
	if refusal == nil {
		refusal, err = bootmedia.Refusal(ctx, q, m.Site, spec, image.GetPath())
	}
	if refusal == nil && err == nil {
		refusal, err = l.unfit(ctx, q, image)
	}
	if refusal == nil || err != nil {
		return err
	}
	return failure.Precondition(refusal.Reason, "%s", refusal.Message).WithMeta("machine_id", m.MachineID).
		WithMeta("image_ref", image.GetImage()).WithMeta("step", steps[i].Step.GetName())
}

// metalFacts reads who may act on the machine, and what it boots, unless that has been read.
func metalFacts(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, begun *preloaded, now time.Time,
) (*preloaded, error) {
	if begun != nil {
		return begun, nil
	}
	f := &preloaded{executors: map[string][]dbsqlc.CandidatesForRow{}, boots: map[string]dbsqlc.BootWorldsRow{}}
	p := dbsqlc.CandidatesForParams{
		Now: now, MachineIds: []string{m.MachineID}, OperationIds: []string{pgtx.StrVal(m.CurrentOperationID)},
		Sites: []string{m.Site},
	}
	return f, q.Together(ctx,
		func(q *dbsqlc.Queries) error { return f.readExecutors(ctx, q, p) },
		func(q *dbsqlc.Queries) error { return f.readBoots(ctx, q, []string{m.MachineID}) },
	)
}

// unfitNow is unfit for the installation that the operation is about to leave the machine's system for; nil for any
// other.
func (l *OperationContext) unfitNow(ctx context.Context, q *dbsqlc.Queries) (*fleet.Refusal, error) {
	op := l.Snap.Op
	if operation.IsTerminal(op.Phase) || !onMetal(l.Machine, l.executors) {
		return nil, nil
	}
	i := op.CurrentStep
	for i < len(op.Steps)-1 && op.Steps[i].Kind == operation.KindNetboot {
		i++
	}
	left := l.command != nil && int(l.command.StepIdx) == i
	if op.Steps[i].Kind != operation.KindRepave || left {
		return nil, nil
	}
	step := &baremetalv1.Step{}
	if err := convert.ParseStep(l.steps[i].Spec, step); err != nil {
		return nil, err
	}
	return l.unfit(ctx, q, step.GetRepave())
}

// unfit returns why an image cannot be installed on the machine, by the inventory of the system that runs on it now;
// nil where that may be possible, or nothing is known.
func (l *OperationContext) unfit(
	ctx context.Context, q *dbsqlc.Queries, r *baremetalv1.RepaveImage,
) (*fleet.Refusal, error) {
	if !slices.ContainsFunc(l.executors, func(c dbsqlc.CandidatesForRow) bool { return c.Role == "host" && c.Live }) {
		return nil, nil // what was reported once may be out of date
	}
	image, err := q.ImageByRef(ctx, r.GetImage())
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read image: %w", err)
	}
	inventory, err := q.LatestInventory(ctx, l.Machine.MachineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read inventory: %w", err)
	}
	known, err := disk.MachineOf(inventory.Document)
	if err != nil {
		return nil, nil //nolint:nilerr // a document that cannot be read says nothing
	}
	if missing, err := catalogstore.NoInstallerFor(ctx, q, known.Arch); missing != nil || err != nil {
		return missing, err
	}
	why := disk.FitRules(known, disk.Image{
		Ref: image.ImageRef, Arch: image.Arch, Firmware: image.Firmware, RawSize: image.SizeBytes,
		MinimumDisk: image.MinimumDiskBytes,
	}, pgtx.OrText(r.GetDisk(), l.spec.GetInstallDisk()), pgtx.OrText(r.GetMirror(), l.spec.GetInstallMirror()),
		l.spec.GetProtectedDisks())
	if why == nil {
		return nil, nil
	}
	return &fleet.Refusal{Reason: why.Reason.String(), Message: fmt.Sprintf("%s, by its inventory of %s; %s", why.Message,
		inventory.ReportedAt.UTC().Format(time.RFC3339), nextStep[why.Reason])}, nil
}

// nextStep is what helps against each misfit.
var nextStep = map[baremetalv1.Reason]string{
	baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH: "see `ingot machine inventory`, and name one disk with `ingot machine " +
		"update --install-disk`",
	baremetalv1.Reason_IMAGE_TOO_LARGE: "name a larger disk with `ingot machine update --install-disk`, or take a " +
		"smaller image",
	baremetalv1.Reason_IMAGE_UNSUPPORTED: "take an image made for it; see `ingot image list`",
}

// needsHost are the steps that only an agent on the machine can take.
var needsHost = map[operation.Kind]bool{
	operation.KindReconfig: true, operation.KindWaitForAgent: true, operation.KindJoin: true, operation.KindReset: true,
	operation.KindTestHardware: true,
}

// takesAgentless refuses an installation without an agent that could not be carried out or proven, and on a machine
// that was installed so whatever needs an agent on it.
func takesAgentless(m dbsqlc.Machine, r StartRequest, steps []plan.Filled) error {
	spec, err := convert.SpecFromJSON(m.Spec)
	if err != nil {
		return err
	}
	kinds := filledKinds(steps)
	agentless, written := m.Agentless, false
	for i, k := range kinds {
		switch {
		case k == operation.KindRepave:
			agentless, written = r.Inputs.Agentless, true
		case agentless && !written && k == operation.KindReboot && spec.GetBmcEndpoint() == "":
			return failure.Precondition("NO_BMC", "the machine's system has no agent, and is rebooted through a BMC; name "+
				"it with `ingot machine update %s --bmc-endpoint ADDRESS`", m.MachineID).
				WithMeta("machine_id", m.MachineID)
		case agentless && needsHost[k]:
			return failure.Precondition("MACHINE_AGENTLESS",
				"step %s needs an agent on the machine, and its system has none; reimage it with `ingot reimage %s` without "+
					"--agentless first", steps[i].Step.GetName(), m.MachineID).
				WithMeta("machine_id", m.MachineID).WithMeta("step", steps[i].Step.GetName())
		}
	}
	if !r.Inputs.Agentless || slices.Contains(kinds, operation.KindRepave) && onMetal(m, nil) && m.Site != "" {
		return nil
	}
	return failure.Precondition("CAPABILITY_MISSING",
		"only our own installer writes a system without an agent, on a machine of a site that it is netbooted from: "+
			"install it without --agentless").WithField("agentless", "no step of the plan is done by the installer").
		WithMeta("machine_id", m.MachineID)
}
