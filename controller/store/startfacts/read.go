package startfacts

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/identity"
	"github.com/ingot-metal/ingot/controller/domain/start"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	approvalstore "github.com/ingot-metal/ingot/controller/store/approval"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	"github.com/ingot-metal/ingot/controller/store/convert"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/disk"
	"github.com/ingot-metal/ingot/internal/maasstatus"
)

// Admit returns the record of the work, or its refusal. It reads the facts that package start asks for: what the work
// names of the catalogue stays until the transaction has ended.
func Admit(ctx context.Context, q *dbsqlc.Queries, f *start.Facts) (start.Record, error) {
	return admit(ctx, q, f, start.Admit)
}

// AdmitWorkflow returns the refusal of a workflow that is about to begin.
func AdmitWorkflow(ctx context.Context, q *dbsqlc.Queries, f *start.Facts) error {
	_, err := admit(ctx, q, f, func(f *start.Facts) (start.Record, []start.Fact, error) {
		ask, err := start.AdmitWorkflow(f)
		return start.Record{}, ask, err
	})
	return err
}

func admit(
	ctx context.Context, q *dbsqlc.Queries, f *start.Facts,
	answer func(*start.Facts) (start.Record, []start.Fact, error),
) (start.Record, error) {
	for {
		r, ask, err := answer(f)
		if err != nil || len(ask) == 0 {
			return r, err
		}
		if err := read(ctx, q, f, ask); err != nil {
			return r, err
		}
	}
}

// read reads facts in one round trip.
func read(ctx context.Context, q *dbsqlc.Queries, f *start.Facts, ask []start.Fact) error {
	reads := make([]func(*dbsqlc.Queries) error, len(ask))
	for i, fact := range ask {
		reads[i] = func(q *dbsqlc.Queries) error {
			err := readers[fact.Kind](ctx, q, f, fact.Ref)
			if errors.Is(err, pgx.ErrNoRows) && mayBeMissing[fact.Kind] {
				return nil
			}
			return err
		}
	}
	if err := q.Together(ctx, reads...); err != nil {
		return fmt.Errorf("read what a start is decided by: %w", err)
	}
	f.Learned(ask...)
	return nil
}

// mayBeMissing are the facts whose row need not exist.
var mayBeMissing = map[start.FactKind]bool{
	start.ScriptFact: true, start.OpenWorkflowFact: true, start.ObservationFact: true, start.ThresholdFact: true,
	start.ImageFact: true, start.InventoryFact: true, start.SSHCredentialsFact: true, start.ClusterFact: true,
}

// readers read a fact by one statement each.
var readers = map[start.FactKind]func(context.Context, *dbsqlc.Queries, *start.Facts, string) error{
	start.ScriptFact:           readScript,
	start.CommandFact:          readCommand,
	start.CommandOperationFact: readCommandOperation,
	start.OpenWorkflowFact:     readOpenWorkflow,
	start.ObservationFact:      readObservation,
	start.ThresholdFact:        readThreshold,
	start.NeighboursFact:       readNeighbours,
	start.PolicyFact:           readPolicy,
	start.ImageFact:            readImage,
	start.AnyImageFact:         readAnyImage,
	start.IdentityFact:         readIdentity,
	start.SegmentsFact:         readSegments,
	start.InventoryFact:        readInventory,
	start.InstallersFact:       readInstallers,
	start.SSHCredentialsFact:   readSSHCredentials,
	start.ClusterFact:          readCluster,
	start.BMCCredentialsFact:   readBMCCredentials,
}

func readScript(ctx context.Context, q *dbsqlc.Queries, f *start.Facts, ref string) error {
	row, err := q.HoldScript(ctx, ref)
	if err == nil {
		f.Scripts = put(f.Scripts, ref, row.Destructive)
	}
	return pgtx.Wrap(err, "read script")
}

func readCommand(ctx context.Context, q *dbsqlc.Queries, f *start.Facts, id string) error {
	row, err := q.GetCommand(ctx, id)
	if err == nil {
		f.Command, f.CommandOperation.ID = convert.CommandFromRow(&row), row.OperationID
	}
	return pgtx.Wrap(err, "read unresolved command")
}

func readCommandOperation(ctx context.Context, q *dbsqlc.Queries, f *start.Facts, id string) error {
	row, err := q.GetOperation(ctx, id)
	if err == nil {
		f.CommandOperation.Type, f.CommandOperation.PlanID = fleet.OperationType(row.Type), row.PlanID
	}
	return pgtx.Wrap(err, "read the operation of the unresolved command")
}

func readOpenWorkflow(ctx context.Context, q *dbsqlc.Queries, f *start.Facts, machineID string) error {
	row, err := q.OpenWorkflowOf(ctx, machineID)
	if err == nil {
		f.OpenWorkflow = &start.OpenWorkflow{ID: row.WorkflowID, State: row.State}
	}
	return pgtx.Wrap(err, "look for an open workflow")
}

func readObservation(ctx context.Context, q *dbsqlc.Queries, f *start.Facts, machineID string) error {
	row, err := q.GetProviderObservation(ctx, machineID)
	if err == nil && row.SetAsideAt == nil {
		f.Observation = &workflow.Observation{State: maasstatus.State(row.State), SystemID: row.SystemID,
			KnownID: row.KnownSystemID, HeldBy: row.HeldBy}
	}
	return pgtx.Wrap(err, "read the provider's observation")
}

func readThreshold(ctx context.Context, q *dbsqlc.Queries, f *start.Facts, site string) error {
	text, err := q.DriftThresholdOf(ctx, site)
	if f.Threshold = workflow.Threshold(text); text == "" {
		f.Threshold = workflow.DriftMajor
	}
	return pgtx.Wrap(err, "read the site's threshold")
}

func readNeighbours(ctx context.Context, q *dbsqlc.Queries, f *start.Facts, endpoint string) (err error) {
	f.Neighbours, err = credentialstore.Neighbours(ctx, q, f.Machine.MachineID, f.Machine.Spec.GetBmcCredentialsRef(),
		endpoint)
	return err
}

func readPolicy(ctx context.Context, q *dbsqlc.Queries, f *start.Facts, machineID string) (err error) {
	f.Policy, err = approvalstore.Demanded(ctx, q, approvalstore.WorkOn(machineID, f.Request.Actor), f.Now)
	return err
}

func readImage(ctx context.Context, q *dbsqlc.Queries, f *start.Facts, ref string) error {
	row, err := q.HoldImage(ctx, ref)
	if err == nil {
		f.Images = put(f.Images, ref, imageOf(row))
	}
	return pgtx.Wrap(err, "read image")
}

func imageOf(row dbsqlc.Image) start.Image {
	return start.Image{Kind: row.Kind, Image: disk.Image{Ref: row.ImageRef, Arch: row.Arch, Firmware: row.Firmware,
		RawSize: row.SizeBytes, MinimumDisk: row.MinimumDiskBytes}}
}

func readAnyImage(ctx context.Context, q *dbsqlc.Queries, f *start.Facts, _ string) error {
	rows, err := q.ListImages(ctx, dbsqlc.ListImagesParams{Kind: catalogstore.KindOS, PageSize: 1})
	f.AnyImage = len(rows) > 0
	return pgtx.Wrap(err, "look for an image")
}

func readIdentity(ctx context.Context, q *dbsqlc.Queries, f *start.Facts, machineID string) error {
	row, err := q.RequiredIdentity(ctx, machineID)
	f.Identity = identity.Higher(identity.Level(row.BySite), identity.Level(row.ByGroup))
	return pgtx.Wrap(err, "read the required identity level")
}

func readSegments(ctx context.Context, q *dbsqlc.Queries, f *start.Facts, site string) error {
	row, err := q.SiteRow(ctx, site)
	if err != nil {
		return fmt.Errorf("read site: %w", err)
	}
	f.SegmentModes, err = convert.SegmentModes(row.Segments)
	return err
}

func readInventory(ctx context.Context, q *dbsqlc.Queries, f *start.Facts, machineID string) (err error) {
	f.Inventory, err = inventoryOf(ctx, q, machineID)
	return err
}

// inventoryOf returns the newest inventory. One that cannot be read is no evidence.
func inventoryOf(ctx context.Context, q *dbsqlc.Queries, machineID string) (start.Inventory, error) {
	row, err := q.LatestInventory(ctx, machineID)
	if err != nil {
		return start.Inventory{}, fmt.Errorf("read inventory: %w", err)
	}
	known, err := disk.MachineOf(row.Document)
	if err != nil {
		return start.Inventory{}, nil //nolint:nilerr // a document that cannot be read is no evidence
	}
	return start.Inventory{Machine: known, ReportedAt: row.ReportedAt}, nil
}

func readInstallers(ctx context.Context, q *dbsqlc.Queries, f *start.Facts, _ string) (err error) {
	f.Installers, err = installersOf(ctx, q)
	return err
}

func installersOf(ctx context.Context, q *dbsqlc.Queries) (archs []string, err error) {
	files, err := catalogstore.InstallerFiles(ctx, q, "")
	for _, f := range files {
		archs = append(archs, f.GetArch())
	}
	return archs, err
}

func readSSHCredentials(ctx context.Context, q *dbsqlc.Queries, f *start.Facts, ref string) error {
	_, err := q.GetSSHCredentials(ctx, ref)
	if err == nil {
		f.SSHCredentials = put(f.SSHCredentials, ref, true)
	}
	return pgtx.Wrap(err, "read SSH credentials")
}

func readCluster(ctx context.Context, q *dbsqlc.Queries, f *start.Facts, ref string) error {
	_, err := q.HoldCluster(ctx, ref)
	if err == nil {
		f.Clusters = put(f.Clusters, ref, true)
	}
	return pgtx.Wrap(err, "read cluster")
}

func readBMCCredentials(ctx context.Context, q *dbsqlc.Queries, f *start.Facts, ref string) error {
	known, err := q.CredentialsKnown(ctx, ref)
	f.BMCCredentials = put(f.BMCCredentials, ref, known)
	return pgtx.Wrap(err, "look for the BMC credentials")
}

func put[V any](all map[string]V, key string, v V) map[string]V {
	if all == nil {
		all = map[string]V{}
	}
	all[key] = v
	return all
}
