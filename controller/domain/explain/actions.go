package explain

import "cmp"

// ID returns the id of the machine.
func (f *Facts) ID() string { return f.Machine.GetMachineId() }

// Thaw lifts the freeze.
func (f *Facts) Thaw() Action {
	a := Action{
		Command:     "ingot server thaw",
		Consequence: "lifts the freeze for the whole fleet",
		Destructive: true,
	}
	if f.Freeze.Restored {
		a.Consequence += "; first compare what agents hold with what the database knows (ingot server info)"
	}
	return a
}

// Doctor has an agent check itself.
func Doctor() Action {
	return Action{Command: "ingot-agent doctor   (on the agent's machine)",
		Consequence: "checks clock, certificate, controller, disk and privileges"}
}

// Unlock lets a locked agent take commands again.
func Unlock() Action {
	return Action{Command: "ingot-agent unlock   (on the agent's machine)",
		Consequence: "the agent takes commands again; ask first who locked it, and why"}
}

// Unflag takes a flag off a machine.
func Unflag(id, flag string) Action {
	return Action{Command: "ingot flag " + id + " " + flag + " --off",
		Consequence: "work may be started on the machine again", Destructive: true}
}

// GiveBMC names the machine's BMC.
func (f *Facts) GiveBMC() Action {
	return Action{Command: "ingot machine update " + f.ID() + " --bmc-endpoint HOST --bmc-credentials NAME",
		Consequence: "the site's agent can switch the machine from outside"}
}

// SetCredentials changes the password by which the machine's BMC is asked.
func (f *Facts) SetCredentials() Action {
	return Action{Command: "ingot bmc credentials set " + cmp.Or(f.Machine.GetSpec().GetBmcCredentialsRef(), "NAME") +
		" --username USER",
		Consequence: "the BMC is asked again with the new password, once"}
}

// Unpark has the BMC asked once more with the same password.
func (f *Facts) Unpark() Action {
	return Action{Command: "ingot bmc unpark " + f.Machine.GetMachineId(),
		Consequence: "the BMC is asked once more with the password that it has refused, for one that was wrong itself; " +
			"each try can lock its account"}
}

// Console shows how far the machine's boot gets.
func (f *Facts) Console() Action {
	if f.Op != nil {
		return Action{Command: "ingot logs " + f.Op.ID,
			Consequence: "shows the operation's log, and for admins the machine's serial console"}
	}
	return Action{Command: "look at the machine's console",
		Consequence: "shows whether it boots, and where it stays"}
}

// SiteGet shows the machine's site.
func (f *Facts) SiteGet() Action {
	return Action{Command: "ingot site get " + f.SiteName(),
		Consequence: "shows each segment: whether it is served, its pool, other DHCP servers"}
}

// RebootBMC switches the machine off and on.
func (f *Facts) RebootBMC() Action {
	return Action{
		Command:     "ingot reboot " + f.ID() + " --mode bmc",
		Consequence: "switches the machine off and on through its BMC; what runs on it is interrupted", Destructive: true,
	}.Starting(StartPowerCycle)
}

// Clear takes NeedsIntervention away.
func (f *Facts) Clear() Action {
	return Action{
		Command:     "ingot clear " + f.ID(),
		Consequence: "takes NeedsIntervention away; it repairs nothing",
		Refused:     !f.Offers.Clears,
	}
}

// Settle asks an operator for the verdict on an unknown outcome. It proposes neither verdict: the operator fills in the
// words in capitals.
func (f *Facts) Settle() []Action {
	return []Action{{
		Command: "ingot settle " + f.ID() + " " + f.Unresolved.ID + " --verdict VERDICT --comment HOW-YOU-KNOW",
		Consequence: "records that the command has acted (happened) or has not (did-not-happen), and lifts the fence; " +
			"be sure that it cannot act any more",
		Destructive: true,
	}}
}
