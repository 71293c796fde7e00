package fleet

import "slices"

// Witness is what observes a condition.
type Witness string

// The witnesses.
const (
	// WitnessRecord: the condition is the controller's own record, and nothing outside observes it.
	WitnessRecord Witness = "record"
	// WitnessMachine: the machine's own agent by its session, else the site's agent by its probe.
	WitnessMachine Witness = "machine"
	// WitnessSite: the site's agent, which asks the machine's BMC or its provider.
	WitnessSite Witness = "site"
	// WitnessAgent: the machine's own agent.
	WitnessAgent Witness = "agent"
)

// Aged is what a condition becomes while its witness is silent.
type Aged string

// The answers to silence.
const (
	// SilenceNever: age does not change the condition.
	SilenceNever Aged = "never"
	// SilenceUnknown: the condition is unknown, and its status is false.
	SilenceUnknown Aged = "unknown"
	// SilenceKeeps: the condition keeps its last status and is not known. Silence heals no fault.
	SilenceKeeps Aged = "keeps"
)

// aging is one row of the table of conditions.
type aging struct {
	condition ConditionType
	witness   Witness
	silence   Aged
}

// agingTable has a row for every condition. The machine's power state ages as BMCReachable does.
var agingTable = []aging{
	{Reachable, WitnessMachine, SilenceUnknown},
	{BMCReachable, WitnessSite, SilenceUnknown},
	{HardwareFault, WitnessSite, SilenceKeeps},
	{ProviderDrift, WitnessSite, SilenceKeeps},
	{Degraded, WitnessAgent, SilenceKeeps},
	{RAIDDegraded, WitnessAgent, SilenceKeeps},
	{Provisioned, WitnessRecord, SilenceNever},
	{InCustomerCluster, WitnessRecord, SilenceNever},
	{Drained, WitnessRecord, SilenceNever},
	{NeedsIntervention, WitnessRecord, SilenceNever},
	{OperationCanceled, WitnessRecord, SilenceNever},
	{RMA, WitnessRecord, SilenceNever},
	{RetiredFlag, WitnessRecord, SilenceNever},
}

// ConditionTypes returns every condition of a machine.
func ConditionTypes() []ConditionType {
	out := make([]ConditionType, 0, len(agingTable))
	for _, row := range agingTable {
		out = append(out, row.condition)
	}
	return out
}

// Aging returns the witness of a condition, and what the condition becomes while that is silent. known is false for a
// condition that the table lacks.
func Aging(c ConditionType) (w Witness, s Aged, known bool) {
	i := slices.IndexFunc(agingTable, func(row aging) bool { return row.condition == c })
	if i < 0 {
		return "", "", false
	}
	return agingTable[i].witness, agingTable[i].silence, true
}

// Witnessed returns the conditions of a witness that age in one of two ways.
func Witnessed(w Witness, s ...Aged) []ConditionType {
	var out []ConditionType
	for _, row := range agingTable {
		if row.witness == w && slices.Contains(s, row.silence) {
			out = append(out, row.condition)
		}
	}
	return out
}
