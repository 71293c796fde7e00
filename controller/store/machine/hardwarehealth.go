package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/encoding/protojson"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/hardware"
	machinerules "github.com/ingot-metal/ingot/controller/domain/machine"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// RecordHardware stores a BMC's reading of a machine's hardware, and sets the condition HardwareFault from it. It drops
// a reading of another site's machine, or of another BMC than the machine's.
func RecordHardware(
	ctx context.Context, q *dbsqlc.Queries, site string, r *fleetv1.HardwareReading, now time.Time,
) error {
	m, err := q.LockMachine(ctx, r.GetMachineId())
	if errors.Is(err, pgx.ErrNoRows) || err == nil && (m.Site != site || m.DeletedAt != nil) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("lock machine: %w", err)
	}
	before, err := hardwareHealth(ctx, q, m.MachineID)
	if err != nil {
		return err
	}
	if before.GetEndpoint() != r.GetEndpoint() {
		before = nil
	}
	h, err := healthIn(r, before, now)
	if err != nil {
		return err
	}
	doc, err := protojson.Marshal(h)
	if err != nil {
		return fmt.Errorf("serialize what a BMC says: %w", err)
	}
	kept, err := q.SetHardwareHealth(ctx, dbsqlc.SetHardwareHealthParams{MachineID: m.MachineID, Endpoint: h.GetEndpoint(),
		ReadAt: h.GetReadAt().AsTime(), Document: doc})
	if err != nil || kept == 0 {
		return pgtx.Wrap(err, "store what a BMC says")
	}
	return setFaults(ctx, q, m.MachineID, hardware.FaultMessage(h), now)
}

// setFaults sets the condition HardwareFault to a text that names the faulty parts; an empty text clears it.
func setFaults(ctx context.Context, q *dbsqlc.Queries, machineID, faults string, now time.Time) error {
	return SetCondition(ctx, q, machineID, operation.ConditionChange{Type: fleet.HardwareFault, Status: faults != "",
		Reason: baremetalv1.Reason_HARDWARE_FAULT.String(), Message: faults}, now)
}

// healthIn converts a reading into the public message, whose fields have the same names. before is the earlier one of
// the same BMC, nil for none. A time that JSON cannot hold is dropped, so that the log of one BMC cannot stop the
// report of its site. A read_at in the future becomes now, because an older reading never replaces a newer one.
func healthIn(
	r *fleetv1.HardwareReading, before *baremetalv1.HardwareHealth, now time.Time,
) (*baremetalv1.HardwareHealth, error) {
	if !r.GetReadAt().IsValid() || r.GetReadAt().AsTime().After(now) {
		r.ReadAt = convert.Timestamp(now)
	}
	for _, e := range r.GetEvents() {
		if !e.GetAt().IsValid() {
			e.At = nil
		}
	}
	raw, err := protojson.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("serialize a reading: %w", err)
	}
	h := &baremetalv1.HardwareHealth{}
	if err := convert.SpecIn.Unmarshal(raw, h); err != nil {
		return nil, fmt.Errorf("parse a reading: %w", err)
	}
	hardware.Settle(h, before)
	return h, nil
}

// GetHardwareHealth reads the last report of a machine's BMC, and the wanted state of its identify light.
func (s *Store) GetHardwareHealth(ctx context.Context, machineID string) (*baremetalv1.HardwareHealth, error) {
	if _, err := s.GetMachine(ctx, machineID, ""); err != nil {
		return nil, err
	}
	return hardwareHealth(ctx, s.db.Lists(ctx), machineID)
}

func hardwareHealth(ctx context.Context, q *dbsqlc.Queries, machineID string) (*baremetalv1.HardwareHealth, error) {
	row, err := q.HardwareHealth(ctx, machineID)
	if err != nil {
		return nil, fmt.Errorf("read what a BMC has said: %w", err)
	}
	h := &baremetalv1.HardwareHealth{}
	if len(row.Document) > 0 {
		if err := convert.SpecIn.Unmarshal(row.Document, h); err != nil {
			return nil, fmt.Errorf("parse what a BMC has said: %w", err)
		}
	}
	h.MachineId, h.Endpoint = machineID, row.BmcEndpoint
	if row.Lit != nil {
		h.IdentifyLightOrdered, h.IdentifyLightOrderedBy = lightWord(*row.Lit), *row.OrderedBy
		h.IdentifyLightOrderedAt = convert.TimestampPtr(row.OrderedAt)
	}
	return h, nil
}

func lightWord(lit bool) string {
	if lit {
		return "on"
	}
	return "off"
}

// SetIdentifyLight orders a machine's identify light, and notifies the site.
func (s *Store) SetIdentifyLight(
	ctx context.Context, machineID string, lit bool, actor string, now time.Time,
) (out *baremetalv1.HardwareHealth, err error) {
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		m, err := q.LockMachine(ctx, machineID)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && m.DeletedAt != nil {
			return convert.MachineNotFound(machineID)
		}
		if err != nil {
			return fmt.Errorf("lock machine: %w", err)
		}
		h, err := hardwareHealth(ctx, q, machineID)
		if err != nil {
			return err
		}
		if err := machinerules.MayLight(machineID, h.GetEndpoint(), m.Provider); err != nil {
			return err
		}
		err = q.SetIdentifyLight(
			ctx,
			dbsqlc.SetIdentifyLightParams{MachineID: machineID, Lit: lit, OrderedBy: actor, Now: now},
		)
		if err != nil {
			return fmt.Errorf("store the order: %w", err)
		}
		if err := q.TouchSite(ctx, m.Site); err != nil {
			return fmt.Errorf("notify the site: %w", err)
		}
		if out, err = hardwareHealth(ctx, q, machineID); err != nil {
			return err
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "IDENTIFY_LIGHT", Target: machineID,
			Data: map[string]string{"light": lightWord(lit)}}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("order the identify light: %w", err)
	}
	return out, nil
}
