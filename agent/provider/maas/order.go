package maas

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/maasstatus"
)

// Verb names a request that changes something in MAAS.
type Verb string

// The verbs.
const (
	Create      Verb = "create"
	Commission  Verb = "commission"
	SetLayout   Verb = "set_storage_layout"
	LinkAuto    Verb = "link_interface"
	Allocate    Verb = "allocate"
	Annotate    Verb = "annotate"
	Deploy      Verb = "deploy"
	Release     Verb = "release"
	TurnOn      Verb = "power_on"
	TurnOff     Verb = "power_off"
	Abort       Verb = "abort"
	Delete      Verb = "delete"
	MarkBroken  Verb = "mark_broken"
	MarkFixed   Verb = "mark_fixed"
	Override    Verb = "override_failed_testing"
	EnterRescue Verb = "rescue_mode"
	ExitRescue  Verb = "exit_rescue_mode"
)

// Annotations that a deployment carries in MAAS.
const (
	noteMachine   = "ingot-machine"
	noteOperation = "ingot-operation"
	// noteRecovery names the operation that has made a failed deployment once more.
	noteRecovery = "ingot-recovery"
)

// Order is what a command wants.
type Order struct {
	Action string
	Params map[string]string
	// Operation and Machine are ours.
	Operation, Machine string
	Serial             string
	MACs               []string
	// Retain leaves the machine in MAAS.
	Retain bool
}

func (o Order) on(param string) bool { return o.Params[param] == "true" }

// Ask is a request that was made, or was about to be.
type Ask struct {
	At time.Time `json:"at"`
	// Answered: MAAS has accepted it. Without it the effect is unknown.
	Answered bool `json:"answered,omitempty"`
	// Doubtful: MAAS had no time, and may have acted before it said so. Was is the machine's status before.
	Doubtful bool              `json:"doubtful,omitempty"`
	Was      maasstatus.Status `json:"was,omitempty"`
	Times    int               `json:"times"`
}

// Progress is what a command has done so far. It is durable before each request.
type Progress struct {
	// SystemID is the machine in MAAS that the command is about.
	SystemID string       `json:"system_id,omitempty"`
	Asked    map[Verb]Ask `json:"asked,omitempty"`
	// Before is the machine's status before the first request.
	Before maasstatus.Status `json:"before,omitempty"`
	// LastEvent is the number of MAAS's newest event of the machine before the first request.
	LastEvent int `json:"last_event,omitempty"`
	// Erasing: MAAS was seen to erase the disks after our request.
	Erasing bool `json:"erasing,omitempty"`
	// Settings of the region before the first request, where disks must be erased.
	Settings *EraseSettings `json:"settings,omitempty"`
}

// Open reports whether the verb was asked for and its outcome is unknown.
func (p Progress) Open(v Verb) bool {
	a, asked := p.Asked[v]
	return asked && !a.Answered
}

// OpenVerbs lists those, sorted.
func (p Progress) OpenVerbs() []Verb {
	var out []Verb
	for _, v := range slices.Sorted(maps.Keys(p.Asked)) {
		if p.Open(v) {
			out = append(out, v)
		}
	}
	return out
}

func (p Progress) asked(v Verb) bool { _, ok := p.Asked[v]; return ok }

// destructive requests lose data, or a record: their unknown outcome is left to an operator.
var destructive = []Verb{Deploy, Release, Delete}

// OpenDestructive reports whether a request that loses data may have acted, or may still act.
func (p Progress) OpenDestructive() bool { return slices.ContainsFunc(destructive, p.Open) }

// Seen is what there is to decide by.
type Seen struct {
	// M is the machine in MAAS; nil when there is none.
	M *Machine
	// User is the name of the key's user in MAAS.
	User string
	// Power as the BMC was read through MAAS, for the actions that ask for it.
	Power string
	// Events of the machine, newest first, for the actions that read them.
	Events []Event
	P      Progress
	Now    time.Time
}

// Next is what to do. Exactly one of Do, Done, Err, Unknown and Wait is set.
type Next struct {
	Do     Verb
	Params map[string]string
	// Done: MAAS shows what the order wants; Evidence has the proof.
	Done     bool
	Evidence map[string]string
	Err      *failure.Error
	// Unknown: it cannot be known, and nothing more can be learned.
	Unknown string
	// Wait is what the order waits for.
	Wait string
}

func do(v Verb, params map[string]string) Next { return Next{Do: v, Params: params} }

func wait(text string) Next { return Next{Wait: text} }

// done puts what MAAS shows beside the evidence of the action.
func done(s Seen, more map[string]string) Next {
	out := map[string]string{evidence.ProviderSaid: "absent"}
	if s.M != nil {
		out[evidence.ProviderSaid], out[EvidenceSystemID] = s.M.StatusName, s.M.SystemID
	}
	maps.Copy(out, more)
	return Next{Done: true, Evidence: out}
}

func fail(reason string, retryable bool, format string, args ...any) Next {
	e := failure.Precondition(reason, format, args...)
	e.Retryable = retryable
	return Next{Err: e}
}

func gone() Next {
	return fail("MAAS_MACHINE_GONE", false, "MAAS has no machine with these MAC addresses, or has another one by now")
}

// conflict: another client has brought the machine into a status where this order makes no sense.
func conflict(s Seen, what string) Next {
	return fail("MAAS_STATUS_CONFLICT", false, "the machine is %q in MAAS; %s", s.M.StatusName, what)
}

// failedThere: MAAS itself reports the failure of its action.
func failedThere(s Seen) Next {
	text := s.M.StatusName
	if s.M.StatusMessage != "" {
		text += ": " + s.M.StatusMessage
	}
	if cause := causeOf(s); cause != "" && !strings.Contains(text, cause) {
		text += "; " + cause
	}
	return fail("MAAS_FAILED", true, "MAAS says %s", text)
}

// EvidenceSystemID is the machine's identifier in MAAS.
const EvidenceSystemID = "maas_system_id"
