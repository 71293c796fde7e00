package credential

import (
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/start"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Command is the command for which an agent asks for a secret. It is empty for one that is not known.
type Command struct {
	ID, ExecutorID string
	State          operation.CommandState
	// Needs reports whether a command of its kind needs the secret.
	Needs bool
}

// Of refuses a command that is not the agent's, or needs no such secret.
func (c Command) Of(agentID string) error {
	if c.ExecutorID != agentID || !c.Needs {
		return failure.NotFound("COMMAND_NOT_FOUND", "the command was not given to this agent")
	}
	return nil
}

// GrantedTo is Of that refuses a command which is not granted, too.
func (c Command) GrantedTo(agentID string) error {
	if err := c.Of(agentID); err != nil {
		return err
	}
	if c.State != operation.Granted {
		return failure.Precondition("GRANT_REFUSED", "the command is %s, not granted", c.State)
	}
	return nil
}

// OpensCluster refuses the credentials of a cluster to agents without a granted command.
func (c Command) OpensCluster(agentID string) error {
	switch {
	case c.ExecutorID != agentID:
		return failure.NotFound("COMMAND_NOT_FOUND", "there is no command %q of yours", c.ID).
			WithField("command_id", "unknown")
	case c.State != operation.Granted:
		return failure.Precondition("GRANT_REFUSED", "command %s is %s, and not granted", c.ID, c.State)
	}
	return nil
}

// PasswordChange is a command that changes the password of a machine's BMC, with all that decides whether it gets one.
type PasswordChange struct {
	AgentID   string
	By        Agent
	Command   Command
	MachineID string
	// Ordered is the BMC of the command. Machine is that of the machine now; nil if it is not of the agent's site.
	Ordered Named
	Machine *Named
	// Stored are the credentials that the machine names; nil for none.
	Stored *Settings
	// Neighbours are the other machines with these credentials that may name the BMC.
	Neighbours []start.Neighbour
}

// Refuse returns why the command gets no new password; nil if it does.
func (p PasswordChange) Refuse() error {
	if err := p.Command.GrantedTo(p.AgentID); err != nil {
		return err
	}
	if err := p.By.serves(); err != nil {
		return err
	}
	switch {
	case p.Machine == nil || *p.Machine != p.Ordered:
		return failure.Precondition("EXECUTION_FAILED",
			"the machine's BMC or its credentials have changed since; the BMC was not told. Start again")
	case p.Stored == nil:
		return BMC.NotFound(p.Machine.Ref)
	}
	if err := p.Stored.MayGoTo(p.Machine.Endpoint); err != nil {
		return err
	}
	return start.PasswordIsOwn(start.Machine{
		Facts: fleet.Facts{MachineID: p.MachineID},
		Spec:  &baremetalv1.MachineSpec{BmcEndpoint: p.Machine.Endpoint, BmcCredentialsRef: p.Stored.Ref},
	}, p.Neighbours)
}

// Settled refuses a command's report that the BMC takes a password which was not made for it. settledBy is the command
// whose password is in force.
func Settled(settledBy, commandID string) error {
	if settledBy != commandID {
		return failure.Precondition("GRANT_REFUSED", "this password is not the one that was made for the command")
	}
	return nil
}

// Certificate are the digests of the trusted certificate of a BMC, and of another one that it shows now.
type Certificate struct{ Trusted, Offered string }

// Trust reports whether trusting a digest changes anything. A certificate that the BMC does not show is refused.
func (c Certificate) Trust(machineID, sum string) (changes bool, err error) {
	switch {
	case c.Trusted == sum && sum != "":
		return false, nil
	case c.Offered == "" || c.Offered != sum:
		return false, failure.Precondition("BMC_CERTIFICATE_NOT_OFFERED",
			"the BMC of machine %s does not show this certificate now; "+
				"ingot bmc certificates --machine %s shows which one it does", machineID, machineID).
			WithField("sha256", "not the offered one")
	}
	return true, nil
}

// MayAskAgain refuses to ask a BMC again that the machine does not have, or has no credentials for.
func MayAskAgain(machineID string, m Named) error {
	if m.Endpoint == "" || m.Ref == "" {
		return failure.Precondition("NO_BMC", "machine %s has no BMC, or no credentials for it; "+
			"ingot machine update %s --bmc-endpoint ADDRESS --bmc-credentials NAME", machineID, machineID)
	}
	return nil
}
