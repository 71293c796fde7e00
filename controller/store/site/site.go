package site

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	"github.com/ingot-metal/ingot/controller/store/convert"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
)

// SiteReport is what a site's agent has applied and seen.
type SiteReport struct {
	Site, AgentID string
	Applied       int64
	BootAddresses map[string]string
	// Leases replace all that are stored, unless LeasesSame.
	Leases     []*fleetv1.SiteLease
	LeasesSame bool
	Unknown    []*fleetv1.UnknownMachine
	BMCs       []*fleetv1.BMCObservation
	Providers  []*fleetv1.ProviderObservation
	Probes     []*fleetv1.ProbeObservation
	Hardware   []*fleetv1.HardwareReading
	// Segments is nil when nothing was said of them.
	Segments []*fleetv1.SegmentObservation
}

// Recorded is what follows of a report.
type Recorded struct {
	// Waiting are the operations that waited for what the agent has applied.
	Waiting []string
	// Power are the machines with active work whose power has changed.
	Power []PowerChange
}

// PowerChange is that of one machine.
type PowerChange struct {
	OperationID string
	Seen        operation.PowerSeen
}

// RecordSite stores a report.
func (s *Store) RecordSite(ctx context.Context, r SiteReport, now time.Time) (out Recorded, err error) {
	var waiting []string
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		moved, err := recordApplied(ctx, q, r, now)
		if err != nil {
			return err
		}
		if err := recordSeen(ctx, q, r, now); err != nil {
			return err
		}
		if moved {
			if waiting, err = q.OperationsWaitingForSite(ctx, r.Site); err != nil {
				return fmt.Errorf("read waiting operations: %w", err)
			}
		}
		return nil
	})
	if err == nil {
		err = s.confirm(ctx, r.Site, confirmable(r))
	}
	if err == nil {
		out.Power, err = s.recordBMCs(ctx, r, now)
	}
	if err == nil {
		err = s.recordProviders(ctx, r, now)
	}
	if err == nil {
		err = s.recordProbes(ctx, r, now)
	}
	if err == nil {
		err = s.recordHardware(ctx, r, now)
	}
	if err != nil {
		return Recorded{}, fmt.Errorf("record site: %w", err)
	}
	out.Waiting = waiting
	return out, nil
}

func recordApplied(ctx context.Context, q *dbsqlc.Queries, r SiteReport, now time.Time) (moved bool, err error) {
	addresses, err := pgtx.JSONMap(r.BootAddresses)
	if err != nil {
		return false, err
	}
	n, err := q.SiteApplied(ctx, dbsqlc.SiteAppliedParams{
		Site: r.Site, AppliedRevision: r.Applied, AgentID: &r.AgentID, BootAddresses: addresses, Now: &now,
	})
	if err != nil {
		return false, fmt.Errorf("record revision: %w", err)
	}
	return n == 1, nil
}

// keepDiscovered is how many unknown machines of one site are remembered: a flood of forged MAC addresses ends there.
const keepDiscovered = 4096

func recordSeen(ctx context.Context, q *dbsqlc.Queries, r SiteReport, now time.Time) error {
	if !r.LeasesSame {
		if err := replaceLeases(ctx, q, r); err != nil {
			return err
		}
	}
	for _, u := range r.Unknown {
		err := q.SawUnknown(ctx, dbsqlc.SawUnknownParams{
			Site: r.Site, Mac: u.GetMacAddress(), Segment: u.GetSegment(), Address: u.GetAddress(), Arch: u.GetArch(),
			Vendor: u.GetVendor(), Now: now,
		})
		if err != nil {
			return fmt.Errorf("record unknown machine: %w", err)
		}
	}
	if len(r.Unknown) > 0 {
		if err := q.ForgetDiscovered(ctx, dbsqlc.ForgetDiscoveredParams{Site: r.Site, Keep: keepDiscovered}); err != nil {
			return fmt.Errorf("forget unknown machines: %w", err)
		}
	}
	if r.Segments == nil {
		return nil
	}
	all := []json.RawMessage{}
	for _, o := range r.Segments {
		b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(o)
		if err != nil {
			return fmt.Errorf("serialize segment: %w", err)
		}
		all = append(all, b)
	}
	raw, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("serialize segments: %w", err)
	}
	if err := q.SiteObserved(ctx, dbsqlc.SiteObservedParams{Site: r.Site, Observations: raw}); err != nil {
		return fmt.Errorf("record segments: %w", err)
	}
	return nil
}

func replaceLeases(ctx context.Context, q *dbsqlc.Queries, r SiteReport) error {
	if err := q.DropLeases(ctx, r.Site); err != nil {
		return fmt.Errorf("drop leases: %w", err)
	}
	p := dbsqlc.InsertLeasesParams{Site: r.Site}
	seen := map[[2]string]bool{}
	for _, l := range r.Leases {
		key := [2]string{l.GetSegment(), l.GetMacAddress()}
		if seen[key] {
			continue
		}
		seen[key] = true
		p.Segments = append(p.Segments, l.GetSegment())
		p.Macs = append(p.Macs, l.GetMacAddress())
		p.Addresses = append(p.Addresses, l.GetAddress())
		p.Expires = append(p.Expires, l.GetExpiresAt().AsTime())
		p.Hostnames = append(p.Hostnames, l.GetHostname())
	}
	if err := q.InsertLeases(ctx, p); err != nil {
		return fmt.Errorf("record leases: %w", err)
	}
	return nil
}

// recordBMCs stores what BMCs said, a machine at a time: each has a row of its own to lock.
func (s *Store) recordBMCs(ctx context.Context, r SiteReport, now time.Time) (changes []PowerChange, err error) {
	for _, o := range r.BMCs {
		var change PowerChange
		err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) (err error) {
			change, err = recordBMC(ctx, q, r.Site, o, now)
			return err
		})
		if err != nil {
			return nil, err
		}
		if change.OperationID != "" {
			changes = append(changes, change)
		}
	}
	return changes, nil
}

// powerChange returns the change from the known power state of a machine to the one that its BMC shows now. It is empty
// where one of them is not known, or where the machine has no work.
func powerChange(m dbsqlc.Machine, state string, at time.Time) PowerChange {
	before := pgtx.OrText(m.LastPowerState, m.PowerState)
	known := func(s string) bool { return s == "on" || s == "off" }
	if m.CurrentOperationID == nil || !known(before) || !known(state) || before == state {
		return PowerChange{}
	}
	return PowerChange{OperationID: *m.CurrentOperationID, Seen: operation.PowerSeen{State: state, At: at}}
}

func (s *Store) recordHardware(ctx context.Context, r SiteReport, now time.Time) error {
	for _, h := range r.Hardware {
		err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
			return machinestore.RecordHardware(ctx, q, r.Site, h, now)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func recordBMC(
	ctx context.Context, q *dbsqlc.Queries, site string, o *fleetv1.BMCObservation, now time.Time,
) (change PowerChange, err error) {
	m, err := q.LockMachine(ctx, o.GetMachineId())
	if errors.Is(err, pgx.ErrNoRows) || err == nil && (m.Site != site || m.DeletedAt != nil) {
		return change, nil // gone or moved since it was asked
	}
	if err != nil {
		return change, fmt.Errorf("lock machine: %w", err)
	}
	state := o.GetPowerState()
	if !o.GetReachable() || !slices.Contains([]string{"on", "off"}, state) {
		state = "unknown"
	}
	change = powerChange(m, state, o.GetSeenAt().AsTime())
	err = q.SetPowerState(ctx, dbsqlc.SetPowerStateParams{MachineID: m.MachineID, Site: site, PowerState: state,
		Now: &now})
	if err != nil {
		return change, fmt.Errorf("record power state: %w", err)
	}
	if err := settleByPowerOff(ctx, q, m, state, o.GetSeenAt().AsTime(), now); err != nil {
		return change, err
	}
	if err := credentialstore.RecordCertificate(ctx, q, site, o, now); err != nil {
		return change, err
	}
	// One that has never been reached is reported too: its address or password is wrong.
	err = q.SetConditionForReason(ctx, dbsqlc.SetConditionForReasonParams{
		MachineID: m.MachineID, Type: string(fleet.BMCReachable), Status: o.GetReachable(),
		Reason:  pgtx.OrText(o.GetReason(), "BMCAnswers"),
		Message: o.GetMessage(), Now: now,
	})
	return change, pgtx.Wrap(err, "record whether the BMC is reached")
}

// settleByPowerOff lifts a fence over a machine that was seen to be off.
func settleByPowerOff(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, state string, seen, now time.Time,
) error {
	if m.UnresolvedCommandID == nil || state != "off" {
		return nil
	}
	row, err := q.GetCommand(ctx, *m.UnresolvedCommandID)
	if err != nil {
		return fmt.Errorf("read unresolved command: %w", err)
	}
	c := convert.CommandFromRow(&row)
	if !operation.PowerOffSettles(c, seen) {
		return nil
	}
	return operationstore.SettleCommand(ctx, q, m.MachineID, c, "power_off", now)
}

// SiteRevision is the number of a site's newest document; 0 for a site that does not exist.
func (s *Store) SiteRevision(ctx context.Context, site string) (int64, error) {
	n, err := s.db.Q.SiteRevision(ctx, site)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read site's revision: %w", err)
	}
	return n, nil
}

// SiteDocument reads all that a site's agent serves by, in one snapshot of the database.
func (s *Store) SiteDocument(ctx context.Context, site string) (*fleetv1.SiteDocument, error) {
	var out *fleetv1.SiteDocument
	err := pgx.BeginTxFunc(ctx, s.db.Pool(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly},
		func(tx pgx.Tx) error {
			var err error
			out, err = siteDocument(ctx, s.db.Q.WithTx(tx), site, s.catalog.InstallerCmdline)
			return err
		})
	if err != nil {
		return nil, fmt.Errorf("read site's document: %w", err)
	}
	return out, nil
}

func siteDocument(ctx context.Context, q *dbsqlc.Queries, site, cmdline string) (*fleetv1.SiteDocument, error) {
	row, err := q.SiteRow(ctx, site)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, failure.NotFound("SITE_NOT_FOUND", "there is no site %q", site)
	}
	if err != nil {
		return nil, fmt.Errorf("read site: %w", err)
	}
	d := &fleetv1.SiteDocument{Revision: row.Revision, Site: site}
	if d.Segments, err = SegmentsToServe(row.Segments); err != nil {
		return nil, err
	}
	if d.Installers, err = catalogstore.InstallerFiles(ctx, q, cmdline); err != nil {
		return nil, err
	}
	assigned, err := q.AssignmentsOfSite(ctx, site)
	if err != nil {
		return nil, fmt.Errorf("read boot assignments: %w", err)
	}
	images, err := imagesOf(ctx, q, assigned)
	if err != nil {
		return nil, err
	}
	machines, err := q.MachinesOfSite(ctx, site)
	if err != nil {
		return nil, fmt.Errorf("read machines: %w", err)
	}
	addMachines(d, assigned, images, machines)
	if err := addMedia(d, assigned); err != nil {
		return nil, err
	}
	if err := addAgentless(ctx, q, d, site, machines); err != nil {
		return nil, err
	}
	d.Providers, err = machinestore.ProviderTargets(ctx, q, site)
	return d, err
}

// imagesOf returns the files of the images that the operations of the assignments will write, by machine. Their steps
// say which: the request may have left it to the plan, to the machine, or to the attempt before.
func imagesOf(
	ctx context.Context, q *dbsqlc.Queries, assigned []dbsqlc.AssignmentsOfSiteRow,
) (map[string][]string, error) {
	refs, named := map[string][]string{}, []string(nil)
	for _, a := range assigned {
		for _, spec := range a.Installs {
			var step baremetalv1.Step
			if err := proto.Unmarshal(spec, &step); err != nil {
				return nil, fmt.Errorf("read step of operation %s: %w", a.OperationID, err)
			}
			if image := step.GetRepave().GetImage(); image != "" {
				refs[a.MachineID] = append(refs[a.MachineID], image)
			}
		}
		named = append(named, refs[a.MachineID]...)
	}
	if len(named) == 0 {
		return nil, nil
	}
	rows, err := q.FilesOfImages(ctx, named)
	if err != nil {
		return nil, fmt.Errorf("read images: %w", err)
	}
	files := map[string]string{}
	for _, r := range rows {
		files[r.ImageRef] = r.Sha256File
	}
	out := map[string][]string{}
	for machine, list := range refs {
		for _, ref := range list {
			if f := files[ref]; f != "" && !slices.Contains(out[machine], f) {
				out[machine] = append(out[machine], f)
			}
		}
	}
	return out, nil
}

// addMachines adds what each machine boots, and its BMC. Machines without an assignment boot from disk.
func addMachines(
	d *fleetv1.SiteDocument, assigned []dbsqlc.AssignmentsOfSiteRow, images map[string][]string,
	machines []dbsqlc.MachinesOfSiteRow,
) {
	has := map[string]bool{}
	for _, a := range assigned {
		has[a.MachineID] = true
		d.Assignments = append(d.Assignments, &fleetv1.BootAssignment{
			MachineId: a.MachineID, MacAddresses: a.Macs, Mode: a.Mode, OperationId: a.OperationID, Token: a.Token,
			Hostname:       a.MachineID,
			PrefetchSha256: images[a.MachineID],
		})
	}
	for _, m := range machines {
		if !has[m.MachineID] && len(m.Macs) > 0 {
			d.Assignments = append(d.Assignments, &fleetv1.BootAssignment{
				MachineId: m.MachineID, MacAddresses: m.Macs, Mode: operation.BootDisk, Hostname: m.MachineID,
			})
		}
		if m.BmcEndpoint != "" {
			d.Bmcs = append(d.Bmcs, &fleetv1.BMCTarget{
				MachineId: m.MachineID, Endpoint: m.BmcEndpoint, CredentialsRef: m.CredentialsRef,
				CredentialsVersion: m.CredentialsVersion,
				CertificateSha256:  m.BmcCertificate, UnparkedAt: convert.TimestampPtr(m.UnparkedAt), MacAddresses: m.Macs,
				SystemUuid: m.SystemUuid, SerialNumber: m.SerialNumber, Bios: m.FirmwareIs == "bios",
				IdentifyLight: m.IdentifyLight,
			})
		}
	}
	slices.SortFunc(d.Assignments,
		func(a, b *fleetv1.BootAssignment) int { return cmp.Compare(a.GetMachineId(), b.GetMachineId()) })
}

// SegmentsToServe reads stored segments, which carry the fields of both messages under the same names.
func SegmentsToServe(raw []byte) ([]*fleetv1.Segment, error) {
	list := []json.RawMessage{}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("parse stored segments: %w", err)
	}
	out := make([]*fleetv1.Segment, 0, len(list))
	for _, b := range list {
		seg := &fleetv1.Segment{}
		if err := convert.SpecIn.Unmarshal(b, seg); err != nil {
			return nil, fmt.Errorf("parse stored segment: %w", err)
		}
		out = append(out, seg)
	}
	return out, nil
}
