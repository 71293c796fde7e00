package startcheck

import (
	"context"
	"fmt"
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation/decider"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	identitystore "github.com/ingot-metal/ingot/controller/store/identity"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Check refuses work that cannot be done on the machine as everything is now, in the order of precedence of the
// refusals. It returns what it could not ask, one sentence each.
func Check(ctx context.Context, q *dbsqlc.Queries, w World, k Work) (notAsked []string, err error) {
	if notAsked, err = catalogued(ctx, q, w, k.Steps); err != nil {
		return nil, err
	}
	checks := []func() error{
		func() error { return identitystore.Identifiable(ctx, q, w.Machine, k.Steps) },
		func() error { return installable(ctx, q, w, k.Steps) },
		func() error { return takesSeed(k) },
		func() error { return takesAgentless(w, k) },
		func() error { return catalogstore.ScriptsReady(ctx, q, w.Machine, k.Steps) },
		func() error { return credentialstore.ClustersReady(ctx, q, k.Steps) },
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return nil, err
		}
	}
	replaced := k.AfterInstall && (!ours(w.Machine) || OnMetal(w.Machine, w.Executors))
	f := decider.Foresee(w.snapshot(k), replaced, w.Now)
	if f.Refusal != nil {
		return nil, failure.Precondition(f.Refusal.Reason, "%s", f.Refusal.Message).
			WithMeta("machine_id", w.Machine.MachineID).WithMeta("step", f.Step)
	}
	if f.ThroughBMC {
		if err := credentialed(ctx, q, w); err != nil {
			return nil, err
		}
	}
	return append(notAsked, f.NotAsked...), nil
}

// credentialed refuses work through a BMC whose credentials are named and not stored: the agent would be given none.
func credentialed(ctx context.Context, q *dbsqlc.Queries, w World) error {
	ref := w.Spec.GetBmcCredentialsRef()
	if ref == "" {
		return nil
	}
	known, err := q.CredentialsKnown(ctx, ref)
	if err != nil {
		return fmt.Errorf("look for the BMC credentials: %w", err)
	}
	if known {
		return nil
	}
	return failure.Precondition("CREDENTIALS_NOT_FOUND",
		"the BMC credentials %q that machine %s names are not stored; add them with `ingot bmc credentials set %s`", ref,
		w.Machine.MachineID, ref).WithMeta("machine_id", w.Machine.MachineID)
}

// takesSeed refuses a seed for work that writes no image by the installer, which alone puts it on a disk.
func takesSeed(k Work) error {
	if !k.Seed || slices.ContainsFunc(k.Steps, repaves) {
		return nil
	}
	return failure.Precondition("CAPABILITY_MISSING",
		"nothing in this plan gives a system ssh keys, user-data or a network configuration: only an image that the "+
			"installer writes is given them").WithField("seed", "the plan has no step of kind repave")
}

// takesAgentless refuses an installation without an agent that could not be carried out or proven, and on a machine
// that was installed so whatever needs an agent on it.
func takesAgentless(w World, k Work) error {
	m := w.Machine
	agentless, written := m.Agentless, false
	for i, of := range Kinds(k.Steps) {
		switch {
		case kind.Of(of).WritesSystem:
			agentless, written = k.Agentless, true
		case agentless && !written && kind.Of(of).ProvenByBoot && w.Spec.GetBmcEndpoint() == "":
			return failure.Precondition("NO_BMC", "the machine's system has no agent, and is rebooted through a BMC; name "+
				"it with `ingot machine update %s --bmc-endpoint ADDRESS`", m.MachineID).
				WithMeta("machine_id", m.MachineID)
		case agentless && kind.Of(of).AsksHost:
			return failure.Precondition("MACHINE_AGENTLESS",
				"step %s needs an agent on the machine, and its system has none; reimage it with `ingot reimage %s` without "+
					"--agentless first", k.Steps[i].Step.GetName(), m.MachineID).
				WithMeta("machine_id", m.MachineID).WithMeta("step", k.Steps[i].Step.GetName())
		}
	}
	if !k.Agentless || slices.ContainsFunc(k.Steps, repaves) && OnMetal(m, nil) && m.Site != "" {
		return nil
	}
	return failure.Precondition("CAPABILITY_MISSING",
		"only our own installer writes a system without an agent, on a machine of a site that it is netbooted from: "+
			"install it without --agentless").WithField("agentless", "no step of the plan is done by the installer").
		WithMeta("machine_id", m.MachineID)
}

func repaves(f plan.Filled) bool { return kind.Of(f.Kind).WritesSystem }
