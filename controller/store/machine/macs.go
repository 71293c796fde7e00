package machine

import (
	"context"
	"fmt"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/call"
	machinerules "github.com/ingot-metal/ingot/controller/domain/machine"
	"github.com/ingot-metal/ingot/controller/domain/membership"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/bmcaddr"
)

// MACInUse is the refusal of a MAC address that a machine has already, in a field of the request.
func MACInUse(ctx context.Context, field, mac, machineID string) error {
	c, _ := call.Caller(ctx)
	return machinerules.MACInUse(c, field, mac, machineID)
}

// setMacs makes the machine's MAC addresses those of its spec; one that another machine has is refused and named.
func (s *Store) setMacs(ctx context.Context, q *dbsqlc.Queries, m *baremetalv1.Machine) error {
	macs := m.GetSpec().GetMacAddresses()
	if err := q.DeleteMachineMacs(ctx, dbsqlc.DeleteMachineMacsParams{MachineID: m.GetMachineId(),
		Keep: pgtx.NonNil(macs)}); err != nil {
		return fmt.Errorf("remove MAC addresses: %w", err)
	}
	if len(macs) == 0 {
		return nil
	}
	have, err := q.MacsInUse(ctx, macs)
	if err != nil {
		return fmt.Errorf("look up MAC addresses: %w", err)
	}
	known := map[string]bool{}
	for _, h := range have {
		if h.MachineID != m.GetMachineId() {
			return MACInUse(ctx, "machine.spec.mac_addresses", h.Mac, h.MachineID)
		}
		known[h.Mac] = true
	}
	var add []string
	for _, mac := range macs {
		if !known[mac] {
			add = append(add, mac)
		}
	}
	if len(add) == 0 {
		return nil
	}
	// After the look at those in use: an address that is released meanwhile has its last machine now.
	if err := s.mayTakeMACs(ctx, q, m, add); err != nil {
		return err
	}
	if err := q.InsertMachineMacs(ctx, dbsqlc.InsertMachineMacsParams{Macs: add,
		MachineID: m.GetMachineId()}); err != nil {
		return fmt.Errorf("insert MAC addresses: %w", err)
	}
	return nil
}

// mayTakeMACs refuses MAC addresses that another record had last, where the caller may not take them from it.
func (s *Store) mayTakeMACs(ctx context.Context, q *dbsqlc.Queries, m *baremetalv1.Machine, macs []string) error {
	by, err := writerOf(ctx)
	if err != nil || by == nil || by.Roles.Everywhere() >= membership.Admin {
		return err
	}
	last, err := q.LastMachinesOfMACs(ctx, macs)
	if err != nil {
		return fmt.Errorf("look up the last machines of MAC addresses: %w", err)
	}
	if len(last) == 0 {
		return nil
	}
	uses, err := s.fieldUses(ctx, q)
	if err != nil {
		return err
	}
	after := FieldsOf(m)
	for _, row := range last {
		before, err := StoredFields(row)
		if err != nil {
			return err
		}
		taken := membership.TakenAddress{By: *by, Last: before, After: after, Uses: uses,
			DeletedWithTPM: row.DeletedAt != nil && row.TpmKeyDigest != nil}
		if err := taken.Refuse(); err != nil {
			return err
		}
	}
	return nil
}

// takeBMC refuses a BMC that another machine of the site has: an action on one would be one on the other. Systems of
// one service differ in their path. Networks of sites may have the same addresses, so sites are apart.
func takeBMC(ctx context.Context, q *dbsqlc.Queries, m *baremetalv1.Machine) error {
	endpoint := m.GetSpec().GetBmcEndpoint()
	if endpoint == "" {
		return nil
	}
	at, err := bmcaddr.Parse(endpoint)
	if err != nil {
		return nil //nolint:nilerr // nothing can be reached by it, and whoever tries says so
	}
	site := m.GetSpec().GetSite()
	if err := q.ClaimBMC(ctx, dbsqlc.ClaimBMCParams{Site: site, Bmc: at.Key()}); err != nil {
		return fmt.Errorf("wait for others that register the BMC: %w", err)
	}
	others, err := q.MachinesAtBMC(ctx, dbsqlc.MachinesAtBMCParams{Site: site, MachineID: m.GetMachineId(),
		Spellings: append(at.Spellings(), endpoint)})
	if err != nil {
		return fmt.Errorf("look up machines of the BMC: %w", err)
	}
	if len(others) == 0 {
		return nil
	}
	c, _ := call.Caller(ctx)
	return machinerules.BMCInUse(c, at.Key(), others[0])
}
