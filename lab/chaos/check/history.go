package check

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// History is one run.
type History struct {
	Header     Header
	Calls      []Call
	Effects    []sim.EffectRecord
	Events     []Event
	Faults     []Fault
	Sightings  []Sighting
	Sessions   []Session
	Grants     []Grant
	Logs       []LogLine
	Operations []*baremetalv1.Operation
	Commands   []*baremetalv1.Command
	Machines   []Machine
	Rollouts   []Rollout
	Freed      []Freed
	Told       []Told
	// Verdicts are what the check of the audit log reported in the end, one for each history.
	Verdicts []*baremetalv1.TimelineVerdict
}

// Header identifies the run.
type Header struct {
	Seed    uint64 `json:"seed"`
	Planted string `json:"planted,omitempty"`
	// Controllers and Agents are how many processes of each there were.
	Controllers int       `json:"controllers"`
	Agents      int       `json:"agents"`
	At          time.Time `json:"at"`
	// Steppable is set when the programs' wall clocks could be stepped.
	Steppable bool `json:"steppable,omitempty"`
	// Wide reports whether one site agent acts on many machines; Slots is the limit of the budget of that world.
	Wide  bool `json:"wide,omitempty"`
	Slots int  `json:"slots,omitempty"`
	// Older reports whether one of the controllers is of an older version.
	Older bool `json:"older,omitempty"`
	// Lost is how many events agents have logged as lost, because their disks had no room for them.
	Lost int `json:"lost,omitempty"`
	// Unfinished is the work that had not come to rest when its time was up.
	Unfinished string `json:"unfinished,omitempty"`
	// Begun is when the run began, At when its history was collected, both by a clock that is never set.
	Begun time.Time `json:"begun,omitzero"`
	// Lingering are agents of whom two processes were left when all was at rest.
	Lingering []string `json:"lingering,omitempty"`
}

// Outcome is what a client knows of a call.
type Outcome string

// A refused call has had no effect; that of an unknown one is open.
const (
	OK      Outcome = "ok"
	Refused Outcome = "refused"
	Unknown Outcome = "unknown"
)

// Method is what a call asks for.
type Method string

// The methods. Every start has a kind of its own on the wire; here they differ by Call.Kind.
const (
	Start      Method = "start"
	Cancel     Method = "cancel"
	Get        Method = "get-operation"
	GetMachine Method = "get-machine"
	List       Method = "list-machines"
)

// Call is one call of one client.
type Call struct {
	Client  int           `json:"client"`
	Method  Method        `json:"method"`
	Kind    string        `json:"kind,omitempty"`
	Machine string        `json:"machine,omitempty"`
	Request string        `json:"request,omitempty"`
	Begin   time.Duration `json:"begin"`
	End     time.Duration `json:"end"`
	Outcome Outcome       `json:"outcome"`
	// Reason is the typed one of a refusal; Error is the text of any failure.
	Reason string `json:"reason,omitempty"`
	Error  string `json:"error,omitempty"`
	// Operation is the one that was asked about, or the one of the answer.
	Operation string `json:"operation,omitempty"`
	Phase     string `json:"phase,omitempty"`
	// Active is the active operation in the answer of GetMachine.
	Active string `json:"active,omitempty"`
}

// Event is one event as a watcher received it.
type Event struct {
	At        time.Duration `json:"at"`
	Operation string        `json:"operation"`
	Seq       int64         `json:"seq"`
	Kind      string        `json:"kind"`
	Phase     string        `json:"phase"`
}

// Fault is one fault, from its beginning to its end.
type Fault struct {
	Kind   string        `json:"kind"`
	Target string        `json:"target"`
	Detail string        `json:"detail,omitempty"`
	Begin  time.Duration `json:"begin"`
	End    time.Duration `json:"end"`
	// Took is set when it was seen to change something: a process gone or stopped, bytes held back, a file system full, a
	// failpoint that fired.
	Took bool `json:"took,omitempty"`
	// Forgets reports whether an agent may have lost events with its memory.
	Forgets bool `json:"forgets,omitempty"`
	// Machine is the one that slept, and Asleep for how long by its boot-time clock.
	Machine string        `json:"machine,omitempty"`
	Asleep  time.Duration `json:"asleep,omitempty"`
}

// Sighting is a machine as a reader that follows the reconcile cursor received it.
type Sighting struct {
	At      time.Duration `json:"at"`
	Machine string        `json:"machine"`
	Version int64         `json:"version"`
	Active  string        `json:"active,omitempty"`
}

// Session is an opened session, from the log of the agent that opened it or of the controller that let it in.
type Session struct {
	Agent      string `json:"agent"`
	Session    string `json:"session"`
	Epoch      int64  `json:"epoch"`
	Controller string `json:"controller"`
	// ByAgent is set when it is from the agent's log.
	ByAgent bool `json:"by_agent"`
}

// Grant is one that a controller has logged.
type Grant struct {
	Command string `json:"command"`
	Agent   string `json:"agent"`
}

// LogLine is a chunk of an operation's log.
type LogLine struct {
	Operation string `json:"operation"`
	Seq       int64  `json:"seq"`
	Text      string `json:"text"`
}

// Rollout is a rollout at its end.
type Rollout struct {
	ID    string `json:"id"`
	State string `json:"state"`
	// AtOnce is how many machines it may have under work at once, and Failures how many may fail before it stops.
	AtOnce   int              `json:"at_once"`
	Failures int              `json:"failures"`
	Machines []RolloutMachine `json:"machines"`
}

// RolloutMachine is one machine of a rollout.
type RolloutMachine struct {
	Machine   string `json:"machine"`
	Wave      int    `json:"wave"`
	State     string `json:"state"`
	Operation string `json:"operation,omitempty"`
}

// Freed is the release of a machine's slot in a budget. At is just before it was asked for.
type Freed struct {
	Machine string    `json:"machine"`
	At      time.Time `json:"at"`
}

// Told is an event as the receiver of webhooks got it.
type Told struct {
	At        time.Duration `json:"at"`
	ID        string        `json:"id"`
	Type      string        `json:"type"`
	Operation string        `json:"operation"`
	Phase     string        `json:"phase"`
	// Signed reports whether the signature is right and over this id, Failed whether the receiver answered with an error.
	Signed bool `json:"signed"`
	Failed bool `json:"failed,omitempty"`
}

// Machine is a machine at the end.
type Machine struct {
	*baremetalv1.Machine
	// Pending counts effects that the world has accepted and that are still to come.
	Pending int
}

// line is one line of a file; one field is set.
type line struct {
	Header    *Header           `json:"header,omitempty"`
	Call      *Call             `json:"call,omitempty"`
	Effect    *sim.EffectRecord `json:"effect,omitempty"`
	Event     *Event            `json:"event,omitempty"`
	Fault     *Fault            `json:"fault,omitempty"`
	Sighting  *Sighting         `json:"sighting,omitempty"`
	Session   *Session          `json:"session,omitempty"`
	Grant     *Grant            `json:"grant,omitempty"`
	Log       *LogLine          `json:"log,omitempty"`
	Rollout   *Rollout          `json:"rollout,omitempty"`
	Freed     *Freed            `json:"freed,omitempty"`
	Told      *Told             `json:"told,omitempty"`
	Operation json.RawMessage   `json:"operation,omitempty"`
	Command   json.RawMessage   `json:"command,omitempty"`
	Machine   json.RawMessage   `json:"machine,omitempty"`
	Verdict   json.RawMessage   `json:"verdict,omitempty"`
	Pending   int               `json:"pending,omitempty"`
}

// Write writes the history as JSON lines.
func (h *History) Write(w io.Writer) error {
	out := writer{enc: json.NewEncoder(w)}
	out.line(line{Header: &h.Header})
	each(h.Faults, func(v *Fault) { out.line(line{Fault: v}) })
	each(h.Calls, func(v *Call) { out.line(line{Call: v}) })
	each(h.Effects, func(v *sim.EffectRecord) { out.line(line{Effect: v}) })
	each(h.Events, func(v *Event) { out.line(line{Event: v}) })
	each(h.Sightings, func(v *Sighting) { out.line(line{Sighting: v}) })
	each(h.Sessions, func(v *Session) { out.line(line{Session: v}) })
	each(h.Grants, func(v *Grant) { out.line(line{Grant: v}) })
	each(h.Logs, func(v *LogLine) { out.line(line{Log: v}) })
	each(h.Rollouts, func(v *Rollout) { out.line(line{Rollout: v}) })
	each(h.Freed, func(v *Freed) { out.line(line{Freed: v}) })
	each(h.Told, func(v *Told) { out.line(line{Told: v}) })
	for _, o := range h.Operations {
		out.line(line{Operation: out.message(o)})
	}
	for _, c := range h.Commands {
		out.line(line{Command: out.message(c)})
	}
	for _, m := range h.Machines {
		out.line(line{Machine: out.message(m.Machine), Pending: m.Pending})
	}
	for _, v := range h.Verdicts {
		out.line(line{Verdict: out.message(v)})
	}
	return out.err
}

func each[T any](list []T, fn func(*T)) {
	for i := range list {
		fn(&list[i])
	}
}

type writer struct {
	enc *json.Encoder
	err error
}

func (w *writer) line(l line) {
	if w.err == nil {
		w.err = w.enc.Encode(l)
	}
}

func (w *writer) message(m proto.Message) json.RawMessage {
	b, err := protojson.Marshal(m)
	if err != nil && w.err == nil {
		w.err = err
	}
	return b
}

// maxLine bounds one line of a history.
const maxLine = 4 << 20

// Read reads what Write wrote. Lines of a newer kind are an error.
func Read(r io.Reader) (History, error) {
	var h History
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, maxLine)
	for n := 1; scan.Scan(); n++ {
		var l line
		if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
			return h, fmt.Errorf("read line %d of the history: %w", n, err)
		}
		if err := h.take(l); err != nil {
			return h, fmt.Errorf("read line %d of the history: %w", n, err)
		}
	}
	return h, scan.Err()
}

func (h *History) take(l line) error {
	if l.Header != nil {
		h.Header = *l.Header
	}
	add(&h.Calls, l.Call)
	add(&h.Effects, l.Effect)
	add(&h.Events, l.Event)
	add(&h.Faults, l.Fault)
	add(&h.Sightings, l.Sighting)
	add(&h.Sessions, l.Session)
	add(&h.Grants, l.Grant)
	add(&h.Logs, l.Log)
	add(&h.Rollouts, l.Rollout)
	add(&h.Freed, l.Freed)
	add(&h.Told, l.Told)
	switch {
	case l.Operation != nil:
		o := &baremetalv1.Operation{}
		h.Operations = append(h.Operations, o)
		return protojson.Unmarshal(l.Operation, o)
	case l.Command != nil:
		c := &baremetalv1.Command{}
		h.Commands = append(h.Commands, c)
		return protojson.Unmarshal(l.Command, c)
	case l.Machine != nil:
		m := &baremetalv1.Machine{}
		h.Machines = append(h.Machines, Machine{m, l.Pending})
		return protojson.Unmarshal(l.Machine, m)
	case l.Verdict != nil:
		v := &baremetalv1.TimelineVerdict{}
		h.Verdicts = append(h.Verdicts, v)
		return protojson.Unmarshal(l.Verdict, v)
	}
	return nil
}

func add[T any](list *[]T, v *T) {
	if v != nil {
		*list = append(*list, *v)
	}
}
