package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/plan"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/workflow"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
)

// bootTokenBytes: 128 random bits name what a machine boots.
const bootTokenBytes = 16

// bootKinds are the steps that change what a machine boots from the network.
var bootKinds = []string{string(operation.KindNetboot), string(operation.KindRepave), string(operation.KindErase)}

func changesBoot(steps []dbsqlc.OperationStep) bool {
	return slices.ContainsFunc(steps, func(s dbsqlc.OperationStep) bool { return slices.Contains(bootKinds, s.Kind) })
}

// boot says what the machine boots from the network, for the operations that change it.
func (l *loaded) boot(f *facts, w *operation.World) {
	b, ok := f.boots[l.machine.MachineID]
	if !ok || !changesBoot(l.steps) {
		return
	}
	w.NewBootToken = ids.Secret(bootTokenBytes)
	w.Boot = operation.Boot{
		Mode: orText(b.Mode, operation.BootDisk), OperationID: strVal(b.OperationID), Revision: b.Revision,
		InstallerAgentID: strVal(b.InstallerAgentID), Applied: b.Applied, Segments: int(b.Segments), InstallerReady: b.Ready,
		IdentityLevel: b.IdentityLevel, IdentityTrust: b.IdentityTrust,
	}
}

// bootChanges says that applyBoot has something to do.
func (l *loaded) bootChanges(m operation.MachineChange) bool { return m.RevokeHosts || m.Assign != nil }

// applyBoot stores a new assignment under the site's next revision, and ends the identities of the systems before.
func (l *loaded) applyBoot(ctx context.Context, q *dbsqlc.Queries, m operation.MachineChange, now time.Time) error {
	if m.RevokeHosts {
		_, err := q.RevokeHostCerts(ctx, dbsqlc.RevokeHostCertsParams{
			MachineID: &l.machine.MachineID, OperationID: &l.row.OperationID, Now: &now,
		})
		if err != nil {
			return fmt.Errorf("revoke the certificates of the system before: %w", err)
		}
	}
	if m.Assign == nil {
		return nil
	}
	return assign(ctx, q, l.machine, *m.Assign, now)
}

func assign(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, a operation.Assignment, now time.Time) error {
	revision, err := q.BumpSite(ctx, m.Site)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // no site, nobody who would serve it
	}
	if err != nil {
		return fmt.Errorf("number the site's document: %w", err)
	}
	err = q.PutAssignment(ctx, dbsqlc.PutAssignmentParams{
		MachineID: m.MachineID, Site: m.Site, Mode: a.Mode, OperationID: strPtr(a.OperationID), Token: a.Token, Revision: revision, Now: now,
	})
	if err != nil {
		return fmt.Errorf("store boot assignment: %w", err)
	}
	if err := q.SetBootMode(ctx, dbsqlc.SetBootModeParams{MachineID: m.MachineID, BootMode: a.Mode}); err != nil {
		return fmt.Errorf("show boot assignment: %w", err)
	}
	return nil
}

// installerSeen records the boot of a RAM system. One that was only to be booted once has been.
func installerSeen(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, h Hello, now time.Time) error {
	if err := q.SetMachineBoot(ctx, dbsqlc.SetMachineBootParams{MachineID: m.MachineID, BootID: h.BootID}); err != nil {
		return fmt.Errorf("record the machine's boot: %w", err)
	}
	if err := settleByProof(ctx, q, m, h, "installer", now); err != nil {
		return err
	}
	if m.BootMode != operation.BootRescue {
		return nil
	}
	return assign(ctx, q, m, operation.Assignment{Mode: operation.BootDisk, Token: ids.Secret(bootTokenBytes)}, now)
}

// repaveAction says what to write, from the image catalogue. A simulated disk takes an image that is only a name.
func (l *loaded) repaveAction(ctx context.Context, q *dbsqlc.Queries, r *baremetalv1.RepaveImage) (*fleetv1.RepaveAction, error) {
	a := &fleetv1.RepaveAction{ImageRef: r.GetImage(), DiskRule: orText(r.GetDisk(), l.spec.GetInstallDisk()), ProtectedDisks: l.spec.GetProtectedDisks()}
	i, err := q.ImageByRef(ctx, r.GetImage())
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		return nil, fmt.Errorf("read image: %w", err)
	default:
		a.Sha256Raw, a.BlobSha256, a.Format, a.RawSize = i.Sha256Raw, i.Sha256File, i.Format, i.SizeBytes
		a.FileSize, a.MinimumDisk, a.Arch, a.Firmware = i.FileSizeBytes, i.MinimumDiskBytes, i.Arch, i.Firmware
	}
	return a, nil
}

// powerAction is a power cycle into the network, or out of the installer into the disk.
func (l *loaded) powerAction(d operation.Decision) *fleetv1.PowerAction {
	a := &fleetv1.PowerAction{Want: "cycle", BootOnce: "PXE", Force: true}
	if s := d.Op.Steps[d.Op.CurrentStep]; s.Kind == operation.KindReboot || operation.TurnedBack(s) {
		a.BootOnce = "DISK"
	}
	return a
}

// installerAction names the installer's kernel and what it is told: where its site is, and under which token it boots.
func (l *loaded) installerAction(ctx context.Context, q *dbsqlc.Queries) (*fleetv1.CommandSpec_Installer, error) {
	b, err := q.BootOf(ctx, l.machine.MachineID)
	if err != nil {
		return nil, fmt.Errorf("read boot assignment: %w", err)
	}
	address, err := l.bootAddress(ctx, q)
	if err != nil {
		return nil, err
	}
	images, err := installerFiles(ctx, q, l.cmdline)
	if err != nil {
		return nil, err
	}
	f := images[0]
	return &fleetv1.CommandSpec_Installer{Installer: &fleetv1.InstallerAction{
		KernelSha256: f.GetKernelSha256(), InitrdSha256: f.GetInitrdSha256(),
		Cmdline: strings.TrimSpace("ingot.role=installer ingot.site=http://" + address + " ingot.token=" + b.Token + " " + f.GetCmdline()),
	}}, nil
}

// bootAddress is the boot server of the segment on which the machine was seen last, or of the site's first.
func (l *loaded) bootAddress(ctx context.Context, q *dbsqlc.Queries) (string, error) {
	site, err := q.SiteRow(ctx, l.machine.Site)
	if err != nil {
		return "", fmt.Errorf("read site: %w", err)
	}
	bySegment := map[string]string{}
	if err := json.Unmarshal(site.BootAddresses, &bySegment); err != nil {
		return "", fmt.Errorf("parse stored boot addresses: %w", err)
	}
	segment, err := q.SegmentOfMACs(ctx, dbsqlc.SegmentOfMACsParams{Site: site.Site, MachineID: l.machine.MachineID})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("find the machine's segment: %w", err)
	}
	if a := bySegment[segment]; a != "" {
		return a, nil
	}
	for _, name := range slices.Sorted(maps.Keys(bySegment)) {
		return bySegment[name], nil
	}
	return "", failure.Unavailable("SITE_AGENT_SILENT", "the site's agent has not said where its boot server is")
}

// installerFiles gives the newest installer of each architecture; amd64 is the first.
func installerFiles(ctx context.Context, q *dbsqlc.Queries, cmdline string) ([]*fleetv1.InstallerFiles, error) {
	rows, err := q.InstallerImages(ctx)
	if err != nil {
		return nil, fmt.Errorf("read installers: %w", err)
	}
	return newestInstallers(rows, cmdline), nil
}

// newestInstallers takes images from the oldest to the newest. Files belong together when their names do, as those of
// installer-kernel-v2 and installer-initrd-v2; an initramfs holds the modules of one kernel. An installer is as new as
// the file that completes it, so that one being uploaded is not booted before it is whole.
func newestInstallers(rows []dbsqlc.InstallerImagesRow, cmdline string) []*fleetv1.InstallerFiles {
	type key struct{ arch, name string }
	sets := map[key]*fleetv1.InstallerFiles{}
	newest := map[string]*fleetv1.InstallerFiles{}
	for _, r := range rows {
		name, ok := strings.CutPrefix(r.ImageRef, r.Kind)
		if !ok {
			name = ""
		}
		f := sets[key{r.Arch, name}]
		if f == nil {
			f = &fleetv1.InstallerFiles{Arch: r.Arch, Cmdline: cmdline}
			sets[key{r.Arch, name}] = f
		}
		switch r.Kind {
		case "installer-kernel":
			f.KernelSha256 = r.Sha256File
		case "installer-initrd":
			f.InitrdSha256 = r.Sha256File
		case "installer-uki":
			f.UkiSha256 = r.Sha256File
		}
		if f.GetKernelSha256() != "" && f.GetInitrdSha256() != "" {
			newest[r.Arch] = f
		}
	}
	out := []*fleetv1.InstallerFiles{}
	for _, arch := range slices.Sorted(maps.Keys(newest)) {
		out = append(out, newest[arch])
	}
	return out
}

// catalogued refuses an image that is not in the catalogue, where a real disk is going to be written. A simulated machine,
// and one behind another provider, takes any name.
func catalogued(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, steps []plan.Filled) error {
	spec, err := specFromJSON(m.Spec)
	if err != nil {
		return err
	}
	if s := plan.ByInstaller(steps); s != nil && m.Provider == workflow.ProviderMAAS {
		return failure.Invalid("INVALID_FIELD", "step %s is done by our own installer, and machine %s is installed by MAAS", s.Step.GetName(), m.MachineID).
			WithField("plan_id", "for a machine of provider maas: plan "+plan.RepaveMAAS+", or one with steps of kind provider_action; to erase it, a decommission").
			WithMeta("machine_id", m.MachineID)
	}
	ours := m.Provider == "" || m.Provider == fleet.AgentProvider
	if !ours || m.Simulated || spec.GetBmcEndpoint() == "" && m.AgentID == nil {
		return nil
	}
	for _, f := range steps {
		if f.Kind != string(operation.KindRepave) {
			continue
		}
		i, err := q.HoldImage(ctx, f.Step.GetRepave().GetImage())
		if errors.Is(err, pgx.ErrNoRows) || err == nil && i.Kind != "os" {
			return failure.NotFound("IMAGE_NOT_FOUND", "there is no image %q in the catalogue; see `ingot image list`", f.Step.GetRepave().GetImage()).
				WithField("image_ref", "not in the catalogue")
		}
		if err != nil {
			return fmt.Errorf("read image: %w", err)
		}
	}
	return nil
}
