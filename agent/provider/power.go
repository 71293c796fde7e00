package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/effect"
)

// BootDevice is what a machine boots from next, once.
type BootDevice string

// Boot devices.
const (
	BootDefault BootDevice = "" // the firmware's own order
	BootPXE     BootDevice = "pxe"
	BootHTTP    BootDevice = "http" // UEFI HTTP boot
	BootDisk    BootDevice = "disk"
	BootMedia   BootDevice = "media" // virtual media, as a CD
)

// BootProof is how it is known what a machine boots from next.
type BootProof string

// The proof of a boot device that was set. Only BootRead is in effect; for the others the next boot is the proof.
const (
	BootRead BootProof = "read" // it reads back
	// BootPending reads back as a setting that the next reset brings into effect.
	BootPending BootProof = "pending"
	// BootOrdered was accepted, to be done at the next reset, and reads back nowhere until then.
	BootOrdered BootProof = "ordered"
	// BootStays reads back as a choice for every boot, although the next one alone was ordered.
	BootStays BootProof = "continuous"
)

// BootChoice is the next boot as the BMC reports it.
type BootChoice struct {
	Device BootDevice
	// Stays is set when the device is meant for every boot, and not for the next one alone.
	Stays bool
	Proof BootProof
}

// Once reports whether the next boot, and only that, is from d.
func (c BootChoice) Once(d BootDevice) bool { return c.Device == d && !c.Stays }

// Switch is one thing that can be done to the power of a machine. There is no cycle and no reset: those cannot be
// repeated safely, and nothing can be read back from them.
type Switch string

// Switches. Each leaves a machine alone that is already so.
const (
	SwitchOn  Switch = "on"
	SwitchOff Switch = "off" // at once
	// SwitchSoftOff asks the operating system, which may take its time or not obey.
	SwitchSoftOff Switch = "soft-off"
)

// Cycle is what a power cycle has done so far. It is kept with the command, so that a later run goes on where an
// earlier one was killed, and it becomes evidence.
type Cycle struct {
	// OffAskedAt is set before the machine is asked to go off for the first time.
	OffAskedAt time.Time `json:"off_asked_at,omitzero"`
	// OffSeenAt is when the BMC first said that it is off. From then on it is never switched off again.
	OffSeenAt time.Time `json:"off_seen_at,omitzero"`
	// OnAskedAt is set before the machine is asked to go on for the first time.
	OnAskedAt time.Time `json:"on_asked_at,omitzero"`
	// OnSeenAt is when the BMC said that it is on again.
	OnSeenAt time.Time `json:"on_seen_at,omitzero"`
	// Others are changes of the power that were seen and were not ordered here.
	Others []Outside `json:"others,omitempty"`
	// Protocol is how the BMC was spoken to: redfish or ipmi.
	Protocol string `json:"protocol,omitempty"`
	// Forced is set when the machine did not switch itself off.
	Forced bool `json:"forced,omitempty"`
	// BootOnce is the device that was set for the next boot, BootProof how that is known.
	BootOnce  BootDevice `json:"boot_once,omitempty"`
	BootProof BootProof  `json:"boot_proof,omitempty"`
}

// Outside is a change of the power from elsewhere: by a person, another manager, or the machine itself.
type Outside struct {
	State PowerState `json:"state"`
	At    time.Time  `json:"at"`
}

const mostOutside = 8

// Outside records a change from elsewhere, as long as there are few.
func (c *Cycle) Outside(state PowerState, at time.Time) {
	if len(c.Others) < mostOutside {
		c.Others = append(c.Others, Outside{State: state, At: at})
	}
}

// CutShort is the error of a call whose time was up before it could say what the BMC does wrong. It unwraps to Cause;
// Last is what the BMC had done until then.
type CutShort struct{ Cause, Last error }

// Error returns both.
func (e *CutShort) Error() string { return fmt.Sprintf("%v; until then: %v", e.Cause, e.Last) }

// Unwrap returns Cause alone.
func (e *CutShort) Unwrap() error { return e.Cause }

// OutOfBand is power and boot device through a BMC, each call until it was read back. Errors are those of package
// failure, with reasons BMC_AUTH_FAILED, BMC_UNREACHABLE and BMC_NO_EFFECT, or refusals of package host.
type OutOfBand interface {
	PowerState(ctx context.Context, t Target) (PowerState, error)
	// TurnOff returns when the machine was seen off; gently asks its system first, for a while. c is brought up to date,
	// and keep is called after each change of it; an error of keep ends the call.
	TurnOff(ctx context.Context, t Target, e effect.Cause, gently bool, c *Cycle, keep func(Cycle) error) error
	// TurnOn returns when the machine was seen on.
	TurnOn(ctx context.Context, t Target, e effect.Cause, c *Cycle, keep func(Cycle) error) error
	// SetBootDevice sets the device of the next boot and returns the proof of it.
	SetBootDevice(ctx context.Context, t Target, e effect.Cause, d BootDevice) (BootProof, error)
}

// Machine is one machine that is switched from outside.
type Machine struct {
	OutOfBand
	Target Target
	// Blind is set when the system inside cannot be read: its boot id is unknown.
	Blind bool
}

// MachineOf returns the machine that h stands for, if h is one behind a provider that can switch it.
func MachineOf(h host.Host) (Machine, bool) {
	r, ok := h.(hostAdapter)
	if !ok {
		return Machine{}, false
	}
	_, inside := r.p.(Inspect)
	m := Machine{Target: r.t, Blind: !inside}
	if m.OutOfBand, ok = r.p.(OutOfBand); ok {
		return m, true
	}
	if p, ok := r.p.(Power); ok {
		m.OutOfBand = basicPower{Power: p, host: r}
		return m, true
	}
	return Machine{}, false
}

// Sensor is one thing that a BMC watches: it has a reading, a state, or both.
type Sensor struct {
	Name  string
	Kind  string // such as temperature, fan, power supply; as the BMC names it, in lower case
	Value float64
	Unit  string // such as Cel, RPM, W
	// Stateful is set when there is no Value, only State, in the BMC's words.
	Stateful bool
	State    string
	Health   string // ok, warning, critical; empty: not said; HealthUnknown
}

// HealthUnknown is the health of what could not be read, or means nothing in the state that it is in. It clears no
// earlier fault.
const HealthUnknown = "unknown"

// NotRead is what stands for a part that could not be read.
func NotRead(name, kind, why string) Sensor {
	return Sensor{Name: name, Kind: kind, Stateful: true, State: stateNotRead + why, Health: HealthUnknown}
}

const stateNotRead = "not read: "

// WhyNotRead is the reason of a part that could not be read; empty where it was.
func (s Sensor) WhyNotRead() string {
	why, _ := strings.CutPrefix(s.State, stateNotRead)
	if s.Health != HealthUnknown || why == s.State {
		return ""
	}
	return why
}

// Incomplete is the error of an answer that lacks some of its parts, each named with the reason. The rest of the answer
// stands beside it.
type Incomplete struct{ Missing []string }

// Unwrap is ErrRefused: the BMC answers, and not with all of it.
func (e *Incomplete) Unwrap() error { return ErrRefused }

// Error names the first of them.
func (e *Incomplete) Error() string {
	const most = 3
	text := "not read: " + strings.Join(e.Missing[:min(len(e.Missing), most)], "; ")
	if more := len(e.Missing) - most; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// Light is the present or wanted state of an identify light.
type Light string

// Lights.
const (
	LightUnknown Light = ""
	LightOn      Light = "on"
	LightOff     Light = "off"
)

// Reading is a BMC's data on its machine's hardware at one moment.
type Reading struct {
	MachineID string
	// Endpoint as it was asked for.
	Endpoint string
	ReadAt   time.Time
	Sensors  []Sensor
	Events   []Event // the newest first
	Light    Light
	// NotRead lists the parts that could not be read, each with the reason.
	NotRead []string
}

// Event is one entry of a BMC's log.
type Event struct {
	ID       string
	At       time.Time // zero: not said
	Severity string    // ok, warning, critical; empty: not said
	Message  string
}

// Hardware is a BMC's data on its machine, unchecked. Missing values are empty.
type Hardware struct {
	Vendor, Model, Serial, UUID string
	// MACs of the machine's network interfaces, lower case with colons.
	MACs []string
}

// What a BMC's protocol adapter ends with. Their texts carry no secret.
var (
	// ErrCredentials: the BMC refuses name and password. Trying again may lock the account.
	ErrCredentials = errors.New("the BMC refuses the credentials")
	// ErrUnauthorized is ErrCredentials with status 401. A BMC that is starting answers with that too.
	ErrUnauthorized = fmt.Errorf("%w (401)", ErrCredentials)
	// ErrSilent: no answer in time, or no connection.
	ErrSilent = errors.New("the BMC does not answer")
	// ErrUnanswered is ErrSilent after the password was sent. The BMC may have counted it as a wrong one.
	ErrUnanswered = fmt.Errorf("%w a log-in", ErrSilent)
	// ErrProtocol: something answers, and not in this protocol.
	ErrProtocol = errors.New("what answers does not speak the protocol")
	// ErrOldTLS is ErrProtocol of a BMC that has no TLS 1.2.
	ErrOldTLS = fmt.Errorf("%w: it has no TLS 1.2", ErrProtocol)
	// ErrRSAOnly is ErrProtocol of a BMC whose TLS exchanges keys by RSA alone, without forward secrecy.
	ErrRSAOnly = fmt.Errorf("%w: its TLS has no key exchange but RSA's", ErrProtocol)
	// ErrRefused: the BMC answers that it won't or can't do that now.
	ErrRefused = errors.New("the BMC refuses")
	// ErrUnchanged: the change of a password was not asked for, or was refused by an answer.
	ErrUnchanged = errors.New("the password was not changed")
	// ErrCertificate: the BMC shows another certificate than the one that is known.
	ErrCertificate = errors.New("the BMC shows another certificate")
)
