// Package kind declares the kinds of work: a step of a plan, and a command to an agent. A file declares one kind. What
// holds for all steps or commands of a kind is read from its declaration, and is stated in no other package.
package kind

import (
	"cmp"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Kind is the name of a kind: of a step as the oneof field of the API's Step is named.
type Kind string

// Declaration is what holds for all steps and commands of a kind.
type Declaration struct {
	Kind Kind
	// Step reports whether plans have steps of the kind. The other kinds are of commands alone, which a step of another
	// kind has made.
	Step bool
	// Runs reports whether this version runs steps of the kind in any plan.
	Runs bool
	// Action is the field of the agents' CommandSpec.action that a command of the kind has; empty for what the controller
	// does itself.
	Action string
	// Capability is what an agent must be able to do; where a declaration lacks it, the name of the kind.
	Capability string

	// Missing is the reason of a step whose agent lacks the capability; where a declaration lacks it, CAPABILITY_MISSING.
	Missing string

	// Control is what works on a step, and Route how an agent that takes its command reaches the machine.
	Control Control
	Route   Route

	// Reserved is the refusal of a client's plan that has a step of the kind; empty where plans may have it.
	Reserved string
	// Mode is the text field of the step's message that selects the variant. Modes are the values that a plan may name
	// there; nil where Check knows them.
	Mode  string
	Modes []string
	// Check returns the fault of a step in a plan, under the path of its message. Fill completes it for one machine.
	// HarmOf and Least return the harm and the least time limit of a step by its fields. Each may be nil.
	Check  func(s *baremetalv1.Step, path string) error
	Fill   func(s *baremetalv1.Step, in Inputs) error
	HarmOf func(s *baremetalv1.Step) Harm
	Least  func(s *baremetalv1.Step) time.Duration

	// Harm is what the work does to its machine, where the fields of a step make it neither worse nor better.
	Harm Harm
	// Timeout and Retries are the limits of a step that neither plan nor configuration limits.
	Timeout time.Duration
	Retries int

	// AsksHost reports whether an agent on the machine takes or proves the step. Others cannot.
	AsksHost bool
	// AsksCluster reports whether the site's agent asks the machine's cluster, for a part of the step at least.
	AsksCluster bool
	// UsesBMC reports whether a site agent carries commands of the kind out through the machine's BMC.
	UsesBMC bool
	// NeedsInstaller reports whether the step is done by the installer, unless the machine's own agent can do it.
	NeedsInstaller bool
	// PrefersInstaller reports whether the installer does the step where the machine runs it, and else its own agent.
	PrefersInstaller bool
	// SwitchesPower reports whether commands of the kind change the machine's power, or restart it.
	SwitchesPower bool
	// Restarts reports whether a command ends the system that runs on the machine, and starts another.
	Restarts bool
	// Unstoppable reports whether an executor that has begun a command cannot take it back.
	Unstoppable bool
	// ProvenByBoot reports whether another boot is the evidence of a command.
	ProvenByBoot bool
	// SetsNextBoot reports whether a command sets from where the machine boots next.
	SetsNextBoot bool
	// Path is the path by which a command of the kind brings a machine into the installer; empty where none does.
	Path string
	// WritesSystem reports whether a system is written to the machine's disk.
	WritesSystem bool
	// DestroysSystem reports whether the system on the machine's disk is gone with the grant.
	DestroysSystem bool

	// Numbered reports whether each command has the next number of the machine's configuration.
	Numbered bool
	// ClusterAct is what a command asks of a cluster; empty where it asks none.
	ClusterAct string
	// Ungranted reports whether an agent starts a command without a grant, because it changes nothing.
	Ungranted bool
	// Unfinished is the reason with which a command of unknown outcome fails, for a kind that can have changed nothing. It
	// is empty where it may have acted: then its machine is fenced.
	Unfinished string
	// Preflight is the kind of the command that asks the installer whether a step of this kind could begin. Token is the
	// kind of the one that makes the secret for it. Both are empty where a step needs none.
	Preflight, Token Kind

	// Prepares reports whether a command only prepares another one, so that its success proves nothing and needs no proof.
	Prepares bool
	// Evidence is the key that an executor must have read back for its success to count; empty where the controller takes
	// another proof.
	Evidence string

	// Follows has the conditions of the machine after a success.
	Follows []Condition

	// Started and Done are the texts of the events of a step: it has begun, and it has succeeded.
	Started, Done string
	// Doing is the sentence about a command under way.
	Doing string
	// Entered is how a machine came into the installer by a command of the kind; empty where none does.
	Entered string
}

// Of returns the declaration of a kind. A kind that is not declared destroys.
func Of(k Kind) Declaration { return *Lookup(k) }

// Lookup returns the declaration of a kind, as Of does. It is shared: callers only read it.
func Lookup(k Kind) *Declaration {
	if d, ok := byName[k]; ok {
		return d
	}
	return complete(Declaration{Kind: k, Harm: Destroys})
}

func complete(d Declaration) *Declaration {
	d.Capability, d.Missing = cmp.Or(d.Capability, string(d.Kind)), cmp.Or(d.Missing, "CAPABILITY_MISSING")
	return &d
}

// All returns the declarations, in the order of the API's oneof; kinds of commands alone follow.
func All() []Declaration { return all }

var all = []Declaration{
	ssh, reboot, netboot, repave, join, verify, net, rma, inspect, erase, waitForAgent, drain, providerAction, setPhase,
	workflowStage, uncordon, resetDevices, testHardware,
	preflight, power, powerOff, powerOn, kexec, bmcPassword, joinToken,
}

var byName = func() map[Kind]*Declaration {
	m := make(map[Kind]*Declaration, len(all))
	for _, d := range all {
		m[d.Kind] = complete(d)
	}
	return m
}()
