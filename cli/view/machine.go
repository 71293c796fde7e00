package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/times"
	"github.com/ingot-metal/ingot/internal/label"
)

// Effective names an effective state for people: MAINTENANCE_IDLE is MAINTENANCE.
func Effective(e pb.MachineStatus_EffectiveState) string {
	if e == pb.MachineStatus_MAINTENANCE_IDLE {
		return "MAINTENANCE"
	}
	return trimEnum(e.String(), "EFFECTIVE_STATE_")
}

// NodeState names a node state without its prefix.
func NodeState(n pb.NodeState) string { return trimEnum(n.String(), "NODE_STATE_") }

// Phase names a machine's phase.
func Phase(p pb.MachineStatus_Phase) string { return trimEnum(p.String(), "PHASE_") }

func (s Style) effective(e pb.MachineStatus_EffectiveState) string {
	name := Effective(e)
	switch e {
	case pb.MachineStatus_IDLE:
		return s.paint(green, name)
	case pb.MachineStatus_BUSY:
		return s.paint(blue, name)
	case pb.MachineStatus_MAINTENANCE_IDLE:
		return s.paint(yellow, name)
	case pb.MachineStatus_ATTENTION:
		return s.paint(orange, "⚠"+name)
	case pb.MachineStatus_BLOCKED:
		return s.paint(red, "⛔"+name)
	}
	return s.paint(grey, name)
}

// State is the name of an effective state as filters and counts have it, in its colour.
func (s Style) State(name string) string {
	if name == "MAINTENANCE" {
		name = pb.MachineStatus_MAINTENANCE_IDLE.String()
	}
	return s.effective(pb.MachineStatus_EffectiveState(pb.MachineStatus_EffectiveState_value[name]))
}

// Effective is a machine's effective state in its colour, with a mark where something is wrong beside it.
func (s Style) Effective(m *pb.Machine) string {
	return s.effective(m.GetStatus().GetEffectiveState()) + s.banner(m)
}

// banner marks a machine that something is wrong with beside its effective state; empty when nothing is.
func (s Style) banner(m *pb.Machine) string {
	for _, c := range []string{"Degraded", "RAIDDegraded", "HardwareFault"} {
		if Holds(m, c) {
			return s.paint(orange, " ⚠DEGRADED")
		}
	}
	return ""
}

// Holds reports whether the machine has the condition and it is true.
func Holds(m *pb.Machine, condition string) bool {
	return slices.ContainsFunc(m.GetStatus().GetConditions(), func(c *pb.Condition) bool {
		return c.GetType() == condition && c.GetStatus()
	})
}

// Unknown reports whether a condition is neither true nor false because its witness is silent. A controller before
// conditions could be unknown sends neither field.
func Unknown(c *pb.Condition) bool {
	return !c.GetKnown() && !c.GetStatus() &&
		(c.GetObservedAt() != nil || c.GetReason() == pb.Reason_SITE_AGENT_SILENT.String())
}

// conditionMark is ✓ of a condition that holds, ? of one that is unknown, and empty of any other.
func conditionMark(m *pb.Machine, condition string) string {
	for _, c := range m.GetStatus().GetConditions() {
		if c.GetType() == condition && Unknown(c) {
			return "?"
		}
	}
	return Mark(Holds(m, condition))
}

// Machines are the columns of `ingot list`. The effective state comes first: it shows whether the machine may be used,
// and ATTENTION the reason why not. wide adds what does not fit on 100 columns.
func (s Style) Machines(m *pb.Machine) (cells, wide []Cell) {
	st := m.GetStatus()
	return []Cell{
			{"MACHINE_ID", m.GetMachineId()}, {"EFFECTIVE", s.Effective(m)}, {"PHASE", Phase(st.GetPhase())},
			{"REACHABLE", conditionMark(m, "Reachable")}, {"PROVISIONED", Mark(Holds(m, "Provisioned"))},
			{"ACTIVE_OP", st.GetActiveOperationId()}, {"ATTENTION", st.GetAttentionReason()},
		}, []Cell{
			{"NODE_STATE", NodeState(st.GetNodeState())}, {"PROVIDER", m.GetSpec().GetProvider()},
			{"SITE", m.GetSpec().GetSite()}, {"RACK", plainCell(m, label.Rack)}, {"IMAGE", short(st.GetOsImageDigest())},
			{"SERIAL", m.GetSpec().GetSerial()}, {"ADDRESS", address(m)}, {"BMC", m.GetSpec().GetBmcEndpoint()},
			{"CONDITIONS", Conditions(m)}, {"SIMULATED", Mark(st.GetSimulated())},
			{"LABELS", Pairs(m.GetLabels())}, {"AGE", Age(m.GetCreatedAt(), s.Now)},
		}
}

// short is the beginning of a digest, by which people tell digests apart.
func short(digest string) string { return digest[:min(len(digest), 12)] }

// address is the machine's own, as far as it is known: where its system is probed, else what it is installed with.
func address(m *pb.Machine) string {
	fixed, _, _ := strings.Cut(m.GetSpec().GetInstallAddress(), "/")
	return cmp.Or(m.GetStatus().GetProbedAddress(), fixed)
}

// MachineLine is a line of `ingot list --watch`.
func (s Style) MachineLine(ev *pb.MachineEvent) string {
	m := ev.GetMachine()
	st := m.GetStatus()
	line := "[" + times.Clock(m.GetUpdatedAt()) + "] " + pad(ev.GetKind().String(), 7) + "  " + pad(m.GetMachineId(), 10)
	if ev.GetKind() != pb.MachineEvent_DELETED {
		line += "  " + pad(
			s.effective(st.GetEffectiveState())+s.banner(m),
			11,
		) + "  " + pad(
			Phase(st.GetPhase()),
			13,
		) + "  " +
			attention(
				st,
			)
	}
	return trimRight(line) + "\n"
}

// MachineCounts is the table of `ingot count`.
func (s Style) MachineCounts(keys []string, r *pb.CountMachinesResponse) string {
	if len(keys) == 0 {
		return fmt.Sprintf("%d machines\n", r.GetTotal())
	}
	t := &Table{}
	for _, k := range keys {
		t.Header = append(t.Header, strings.ToUpper(Clean(k)))
	}
	t.Header = append(t.Header, "MACHINES")
	for _, g := range r.GetGroups() {
		var row []string
		for _, v := range g.GetValues() {
			row = append(row, Clean(v))
		}
		t.Add(append(row, fmt.Sprint(g.GetCount()))...)
	}
	return t.String() + fmt.Sprintf("%d machines in all\n", r.GetTotal())
}

// Hits is the table of `ingot find`.
func Hits(hits []*pb.SearchHit) string {
	t := &Table{Header: []string{"MACHINE", "FOUND IN", "VALUE"}}
	for _, h := range hits {
		t.Add(Clean(h.GetMachineId()), Clean(h.GetField()), Clean(h.GetValue()))
	}
	return t.String()
}

// attention returns why an operator must act, with the next step; "" for none.
func attention(st *pb.MachineStatus) string {
	if st.GetAttentionReason() == "" {
		return ""
	}
	return st.GetAttentionReason() + ": " + Clean(st.GetAttentionMessage())
}

// Conditions lists the conditions that hold, such as "Provisioned=✓, Reachable=✓".
func Conditions(m *pb.Machine) string {
	var out []string
	for _, c := range m.GetStatus().GetConditions() {
		switch {
		case c.GetStatus():
			out = append(out, c.GetType()+"=✓")
		case Unknown(c):
			out = append(out, c.GetType()+"=?")
		}
	}
	return strings.Join(out, ", ")
}

// Machine is the sheet of `ingot machine get`.
func (s Style) Machine(m *pb.Machine) string {
	f, st, sp := &Fields{}, m.GetStatus(), m.GetSpec()
	f.Add("Machine", m.GetMachineId())
	f.Add("EffectiveState", s.effective(st.GetEffectiveState())+s.banner(m))
	f.Add("Attention", attention(st))
	f.Add("Phase", Phase(st.GetPhase()))
	f.Add("NodeState", NodeState(st.GetNodeState()))
	f.Add("ActiveOperationId", st.GetActiveOperationId())
	f.Add("UnresolvedCommandId", s.Bad(st.GetUnresolvedCommandId()))
	f.Add("Schedulable", yesNo(st.GetSchedulable()))
	if st.GetSimulated() {
		f.Add("Simulated", s.Warn("yes, this is not a real machine"))
	}
	addSpec(f, sp)
	f.Add("Labels", Pairs(m.GetLabels()))
	f.Add("Agent", agentOf(st))
	f.Add("BootId", st.GetBootId())
	f.Add("PowerState", st.GetPowerState())
	f.Add("ImageDigest", st.GetOsImageDigest())
	f.Add("Identity", identity(st))
	f.Add("TPM", st.GetTpm().GetEndorsementKey())
	f.Add("FirstProvisioned", Time(st.GetFirstProvisionedAt()))
	f.Add("LastHeartbeat", Age(st.GetLastHeartbeatAt(), s.Now))
	f.Add("LastInstallError", Clean(st.GetLastInstallError()))
	f.Add("Created", Time(m.GetCreatedAt()))
	f.Add("Updated", Time(m.GetUpdatedAt()))
	return f.String() + s.conditionTable(m)
}

// agentOf is the machine's own agent, or how it does without one.
func agentOf(st *pb.MachineStatus) string {
	switch {
	case !st.GetAgentless():
		return st.GetAgentId()
	case st.GetProbedAddress() == "":
		return "none, installed without one"
	}
	return "none, installed without one; probed at " + st.GetProbedAddress()
}

func addSpec(f *Fields, sp *pb.MachineSpec) {
	f.Add("Provider", sp.GetProvider())
	f.Add("Site", sp.GetSite())
	f.Add("Region", sp.GetRegion())
	f.Add("Rack", sp.GetRack())
	f.Add("Location", sp.GetLocation())
	f.Add("Group", sp.GetGroup())
	f.Add("Serial", sp.GetSerial())
	f.Add("ExternalId", sp.GetExternalId())
	f.Add("CustomerId", sp.GetCustomerId())
	f.Add("MACs", strings.Join(sp.GetMacAddresses(), ", "))
	f.Add("SSH", sp.GetSshEndpoint())
	f.Add("BMC", sp.GetBmcEndpoint())
	f.Add("Cluster", sp.GetTargetClusterRef())
	f.Add("DefaultImage", sp.GetDefaultImageRef())
}

func (s Style) conditionTable(m *pb.Machine) string {
	if len(m.GetStatus().GetConditions()) == 0 {
		return ""
	}
	t := &Table{Header: []string{"CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"}}
	for _, c := range m.GetStatus().GetConditions() {
		mark, message := conditionMark(m, c.GetType()), Clean(c.GetMessage())
		if !c.GetKnown() && c.GetObservedAt() != nil {
			message = strings.TrimPrefix(message+"; ", "; ") + "observed last " + timeAgo(c.GetObservedAt(), s.Now)
		}
		t.Add(c.GetType(), mark, Age(c.GetLastTransition(), s.Now), c.GetReason(), message)
	}
	return "\n" + t.String()
}

// identity is the level that the machine's last RAM system has reached, and why its TPM is believed.
func identity(st *pb.MachineStatus) string {
	level := st.GetIdentityLevel()
	if trust := st.GetTpm().GetTrust(); level == "tpm" && trust != "" {
		level += ", " + trust
	}
	return level
}
