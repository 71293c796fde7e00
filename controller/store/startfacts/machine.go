// Package startfacts reads the facts that a start is decided by. It holds no rule: package start names the facts.
package startfacts

import (
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/start"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Machine returns the record of a machine.
func Machine(m dbsqlc.Machine, conditions []dbsqlc.MachineCondition) (start.Machine, error) {
	spec, err := convert.SpecFromJSON(m.Spec)
	return start.Machine{
		Facts: convert.FleetFacts(m, conditions), Spec: spec, Provider: m.Provider, Site: m.Site, BootID: m.BootID,
		AgentID: pgtx.StrVal(m.AgentID), OperationID: pgtx.StrVal(m.CurrentOperationID),
		InstallPlan: pgtx.StrVal(m.PlanID), QuarantineReason: m.QuarantineReason, AcceptedDrift: m.AcceptedDrift,
		Simulated: m.Simulated, HasTPM: m.TpmKeyDigest != nil,
	}, err
}

// Boot returns what a machine boots from the network, without the token of a new assignment.
func Boot(b dbsqlc.BootWorldsRow) operation.Boot {
	return operation.Boot{
		Mode: pgtx.OrText(b.Mode, operation.BootDisk), OperationID: pgtx.StrVal(b.OperationID), Revision: b.Revision,
		InstallerAgentID: pgtx.StrVal(b.InstallerAgentID), Applied: b.Applied, Segments: int(b.Segments),
		InstallerReady: b.Ready,
		IdentityLevel:  b.IdentityLevel, IdentityTrust: b.IdentityTrust,
		PhonedHome: convert.JSONToMap(b.PhonedHome),
	}
}

// Agents returns the agents of rows.
func Agents(rows []dbsqlc.CandidatesForRow) []fleet.Candidate {
	out := make([]fleet.Candidate, 0, len(rows))
	for _, r := range rows {
		out = append(out, fleet.Candidate{
			AgentID: r.AgentID, Role: r.Role, StateID: r.StateID, Capabilities: r.Capabilities, Simulated: r.Simulated,
			Live: r.Live, LastSeen: pgtx.TimeVal(r.LastHeartbeatAt),
			NotHeardUntil: pgtx.TimeVal(r.SilentFrom), OperationID: pgtx.StrVal(r.OperationID), BootID: r.BootID,
			ImageDigest: r.OsImageDigest, Hardware: r.HardwareFingerprint,
		})
	}
	return out
}
