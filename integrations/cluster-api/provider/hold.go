package provider

import (
	"context"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// holding is whether a machine carries a claim.
type holding int

const (
	// held: it does.
	held holding = iota
	// again: it has changed meanwhile.
	again
	// taken: it carries another claim.
	taken
	// gone: there is no such machine.
	gone
	// unfit: it carries none, and may not be taken now.
	unfit
)

// hold writes a claim to its machine unless another holds it. Without earlier work the machine must be free; one that
// was taken before is taken again, whatever it does now.
func (f *Fleet) hold(ctx context.Context, c Claim, before bool) (*baremetalv1.Machine, holding, error) {
	m, err := f.machine(ctx, c.MachineID)
	switch {
	case err != nil:
		return nil, again, err
	case m == nil:
		return nil, gone, nil
	case m.GetLabels()[ClaimLabel] == c.ID:
		return m, held, nil
	case m.GetLabels()[ClaimLabel] != "":
		return m, taken, nil
	case !before && !free(m):
		return m, unfit, nil
	}
	labelled, err := f.label(ctx, m, c.ID)
	if err != nil || labelled == nil {
		return nil, again, err
	}
	return labelled, held, nil
}

// lost returns the decision for a lost claim.
func lost(h holding, c Claim) decision {
	if h == gone {
		return decision{reason: baremetalv1.Reason_MACHINE_NOT_FOUND.String(),
			message: "machine " + c.MachineID + " is not in Ingot any more; delete the Machine"}
	}
	return decision{reason: ReasonClaimLost,
		message: "machine " + c.MachineID + " carries another claim; nothing is done to it. Delete the Machine"}
}
