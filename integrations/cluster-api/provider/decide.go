package provider

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/internal/label"
)

// Claim is the machine that an IngotMachine has chosen, and the id under which it holds it: the UID that the object had
// then.
type Claim struct{ MachineID, ID string }

// ParseClaim reads a claim that String has written.
func ParseClaim(s string) (Claim, bool) {
	machine, id, ok := strings.Cut(s, "/")
	return Claim{machine, id}, ok && machine != "" && id != ""
}

func (c Claim) String() string { return c.MachineID + "/" + c.ID }

// request is the request id of a step. It is the same in every process, so that the step happens once.
func (c Claim) request(step string) string { return client.RequestID("capi", c.ID, step) }

// Steps of a machine's time in a cluster. Each is asked for once.
const (
	stepEnter     = "enter"  // into maintenance, to be installed
	stepExit      = "exit"   // into service
	stepLeave     = "leave"  // into maintenance, to be erased
	stepErase     = "erase"  // a decommission that writes the image anew
	stepReturn    = "return" // out of the maintenance that enter or leave began
	stepInstalled = "installed"
	stepCancel    = "cancel"
	stepAbandon   = "abandon" // the decommission that is not wanted any more
	stepRelease   = "release"
	stepWait      = ""
)

// maxInstalls is how many installations are asked for; each makes up to three attempts of its own.
const maxInstalls = 3

func installStep(n int) string { return fmt.Sprintf("install-%d", n) }

// work is what was asked for under a claim.
type work struct {
	enter, exit, leave, back *baremetalv1.Operation
	// installs are in their order.
	installs []*baremetalv1.Operation
	erasure  *baremetalv1.Workflow
}

// begun reports whether anything has been asked of the machine.
func (w work) begun() bool { return w.enter != nil }

// decision is the next step, or why there is none now.
type decision struct {
	step            string
	reason, message string
	operation       *baremetalv1.Operation
}

// The reasons of the condition Ready that are not in Ingot's closed set.
const (
	ReasonProvisioned   = "Provisioned"
	ReasonNoOwner       = "WaitingForOwner"
	ReasonNoCluster     = "WaitingForClusterInfrastructure"
	ReasonNoBootstrap   = "WaitingForBootstrapData"
	ReasonFormat        = "BootstrapFormatUnsupported"
	ReasonNoEndpoint    = "WaitingForControlPlaneEndpoint"
	ReasonNoFreeMachine = "NoFreeMachine"
	ReasonClaiming      = "Claiming"
	ReasonClaimLost     = "ClaimLost"
	ReasonInstalling    = "Installing"
	ReasonReleasing     = "Releasing"
	ReasonErasing       = "Erasing"
	ReasonMaintenance   = "InMaintenance"
	ReasonOutOfService  = "NotInService"
	ReasonUnreachable   = "IngotUnreachable"
)

// free reports whether a machine may be taken: an admin has offered it to Cluster API, it is neither claimed nor owned
// otherwise, and no cluster of a customer runs on it. It must be new, in service without work, or lack nothing but a
// system.
func free(m *baremetalv1.Machine) bool {
	labels := m.GetLabels()
	if labels[label.Offered] != label.ClusterAPI || labels[ClaimLabel] != "" || owned(labels) || inCluster(m) {
		return false
	}
	switch m.GetStatus().GetEffectiveState() {
	case baremetalv1.MachineStatus_NEW, baremetalv1.MachineStatus_IDLE:
		return true
	case baremetalv1.MachineStatus_ATTENTION:
		return m.GetStatus().GetAttentionReason() == baremetalv1.Reason_NOT_PROVISIONED.String()
	}
	return false
}

// owned reports whether another tool or a team owns the machine.
func owned(labels map[string]string) bool {
	owner := labels[label.Owner]
	return owner != "" && owner != label.ClusterAPI
}

// inCluster reports whether a cluster runs on the machine that this provider has not made, or is meant to.
func inCluster(m *baremetalv1.Machine) bool {
	return m.GetSpec().GetTargetClusterRef() != "" ||
		slices.ContainsFunc(m.GetStatus().GetConditions(), func(c *baremetalv1.Condition) bool {
			return c.GetType() == "InCustomerCluster" && c.GetStatus()
		})
}

// choose picks a free machine for an id; nil where there is none. Every process picks the same, and different ids pick
// different machines as far as there are enough.
func choose(machines []*baremetalv1.Machine, id string) (best *baremetalv1.Machine) {
	var highest string
	for _, m := range machines {
		if !free(m) {
			continue
		}
		sum := sha256.Sum256([]byte(id + "/" + m.GetMachineId()))
		if rank := string(sum[:]); best == nil || rank > highest {
			best, highest = m, rank
		}
	}
	return best
}

func succeeded(o *baremetalv1.Operation) bool { return o.GetPhase() == baremetalv1.Operation_SUCCEEDED }

// pending returns the decision to wait for an operation.
func pending(reason string, o *baremetalv1.Operation) decision {
	text := cmp.Or(o.GetProgressMessage(), o.GetWaitReason())
	return decision{reason: reason, operation: o,
		message: strings.TrimSpace(fmt.Sprintf("%s %s: %s %s", o.GetType(), o.GetOperationId(), o.GetCurrentStage(), text))}
}

// failed returns the decision for an operation that has ended without success.
func failed(o *baremetalv1.Operation) decision {
	return decision{
		reason:    cmp.Or(o.GetError().GetCode(), o.GetPhase().String()),
		operation: o,
		message: fmt.Sprintf("%s %s: %s. See: ingot why %s", o.GetType(),
			o.GetOperationId(), strings.TrimSuffix(o.GetError().GetMessage(), "."), o.GetMachineId()),
	}
}

// nextInstall is the next step towards a provisioned machine.
func nextInstall(m *baremetalv1.Machine, w work) decision {
	if w.enter == nil {
		return decision{step: stepEnter}
	}
	if d, done := outcome(ReasonInstalling, w.enter); !done {
		return d
	}
	n := len(w.installs)
	if n == 0 {
		return decision{step: installStep(1)}
	}
	last := w.installs[n-1]
	if client.Ended(last) && !succeeded(last) && last.GetError().GetRetryable() && n < maxInstalls {
		return decision{step: installStep(n + 1)}
	}
	if d, done := outcome(ReasonInstalling, last); !done {
		return d
	}
	if w.exit == nil {
		return decision{step: stepExit}
	}
	if d, done := outcome(ReasonInstalling, w.exit); !done {
		return d
	}
	if m.GetStatus().GetEffectiveState() == baremetalv1.MachineStatus_IDLE {
		return decision{step: stepInstalled, operation: last}
	}
	d := health(m)
	d.operation = last
	return d
}

// outcome reports whether an operation has succeeded, and else what to say of it.
func outcome(reason string, o *baremetalv1.Operation) (decision, bool) {
	switch {
	case !client.Ended(o):
		return pending(reason, o), false
	case !succeeded(o):
		return failed(o), false
	}
	return decision{}, true
}

// health returns whether the machine is in service, and else the reason. It has no step.
func health(m *baremetalv1.Machine) decision {
	s := m.GetStatus()
	switch s.GetEffectiveState() {
	case baremetalv1.MachineStatus_IDLE:
		return decision{reason: ReasonProvisioned}
	case baremetalv1.MachineStatus_ATTENTION:
		return decision{reason: cmp.Or(s.GetAttentionReason(), ReasonOutOfService), message: s.GetAttentionMessage()}
	case baremetalv1.MachineStatus_BUSY:
		return decision{reason: baremetalv1.Reason_MACHINE_BUSY.String(),
			message: "operation " + s.GetActiveOperationId() + " is under way"}
	case baremetalv1.MachineStatus_BLOCKED:
		return decision{reason: baremetalv1.Reason_MACHINE_BLOCKED.String(), message: "the machine is out of service"}
	case baremetalv1.MachineStatus_MAINTENANCE_IDLE:
		return decision{reason: ReasonMaintenance,
			message: "an operator has taken the machine into maintenance: ingot exit-maintenance " + m.GetMachineId()}
	}
	return decision{reason: ReasonOutOfService, message: "the machine is " + s.GetEffectiveState().String()}
}

// nextRelease is the next step towards a machine without a claim.
func nextRelease(m *baremetalv1.Machine, w work, erase bool) decision {
	for _, o := range append([]*baremetalv1.Operation{w.enter, w.exit, w.leave}, w.installs...) {
		if o == nil || client.Ended(o) {
			continue
		}
		d := pending(ReasonReleasing, o)
		if o.GetType() == baremetalv1.Operation_REIMAGE {
			d.step = stepCancel
		}
		return d
	}
	maintenance := m.GetStatus().GetPhase() == baremetalv1.MachineStatus_MAINTENANCE
	if erase && len(w.installs) > 0 {
		switch w.erasure.GetState() {
		case baremetalv1.Workflow_STATE_UNSPECIFIED:
			if !maintenance && w.leave == nil {
				return decision{step: stepLeave}
			}
			return decision{step: stepErase}
		case baremetalv1.Workflow_COMPLETED, baremetalv1.Workflow_RECONCILED:
		default:
			return erasing(w.erasure)
		}
	}
	if !erase && w.erasure != nil && w.erasure.GetEndedAt() == nil {
		d := erasing(w.erasure)
		if w.erasure.GetState() != baremetalv1.Workflow_COMPENSATING {
			d.step = stepAbandon
		}
		return d
	}
	// Maintenance that was begun elsewhere stays.
	ours := succeeded(w.enter) && !succeeded(w.exit) || succeeded(w.leave)
	if ours && maintenance && w.back == nil {
		return decision{step: stepReturn}
	}
	if w.back != nil {
		if d, done := outcome(ReasonReleasing, w.back); !done {
			return d
		}
	}
	return decision{step: stepRelease}
}

func erasing(w *baremetalv1.Workflow) decision {
	d := decision{reason: ReasonErasing,
		message: fmt.Sprintf("workflow %s is %s at %s", w.GetWorkflowId(), w.GetState(), w.GetCurrentStage())}
	if w.GetReason() != "" && w.GetState() != baremetalv1.Workflow_RUNNING {
		d.reason = w.GetReason()
		d.message += ": " + w.GetMessage()
	}
	if w.GetRecommendedAction() != "" {
		d.message += ". " + w.GetRecommendedAction()
	}
	return d
}
