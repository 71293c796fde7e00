package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind is a kind of effect.
type Kind string

// All kinds of effects.
const (
	KindReboot         Kind = "reboot"
	KindBootNext       Kind = "bootnext"
	KindBootNextClear  Kind = "bootnext-clear"
	KindHostname       Kind = "hostname"
	KindFirewall       Kind = "firewall"
	KindFirewallRemove Kind = "firewall-remove"
	KindNetwork        Kind = "network"
	KindRepave         Kind = "repave"
	KindErase          Kind = "erase"
	KindPowerOn        Kind = "power-on"
	KindPowerOff       Kind = "power-off"
	// KindDiskHealth is no effect: in a test of the hardware the disk is slow where the mode is late, and otherwise
	// reports that it expects to fail.
	KindDiskHealth Kind = "disk-health"
)

// kindsByName are the names that a script may use: the kinds, and the commands that cause them.
var kindsByName = map[string][]Kind{
	"reboot":          {KindReboot},
	"bootnext":        {KindBootNext},
	"netboot":         {KindBootNext},
	"bootnext-clear":  {KindBootNextClear},
	"hostname":        {KindHostname},
	"firewall":        {KindFirewall},
	"reconfig":        {KindHostname, KindFirewall},
	"firewall-remove": {KindFirewallRemove},
	"network":         {KindNetwork},
	"repave":          {KindRepave},
	"erase":           {KindErase},
	"power-on":        {KindPowerOn},
	"power-off":       {KindPowerOff},
	"disk-health":     {KindDiskHealth},
}

// Mode is a way to fail.
type Mode string

// All ways to fail.
const (
	// FailBefore answers with an error; nothing happens.
	FailBefore Mode = "fail-before"
	// Decline answers with a refusal at once, as the kernel or systemd does; nothing happens.
	Decline Mode = "decline"
	// FailAfter lets the effect happen and answers with an error.
	FailAfter Mode = "fail-after"
	// CrashBefore kills the process; nothing happens.
	CrashBefore Mode = "crash-before"
	// CrashAfter lets the effect happen, or be accepted where it has a delay, and kills the process.
	CrashAfter Mode = "crash-after"
	// Late accepts, and the effect happens after the given time.
	Late Mode = "late"
	// Never accepts, and nothing ever happens. A repave, which is no answer without its end, hangs until its
	// context ends.
	Never Mode = "never"
	// Lie claims success without an effect. After a reboot the agent is started again with the old boot id. A repave shows
	// the ordered evidence while the disk keeps its content. A power state reads as ordered while the machine runs on. A
	// boot entry is shown as set and is not.
	Lie Mode = "lie"
)

var modes = []Mode{FailBefore, Decline, FailAfter, CrashBefore, CrashAfter, Late, Never, Lie}

// Modes returns all ways to fail.
func Modes() []Mode { return slices.Clone(modes) }

// Fault is one line of a script.
type Fault struct {
	Machine string // "" is any machine
	Kind    Kind
	Mode    Mode
	After   time.Duration // of Late
	Nth     int           // counted from 1; 0 is every time
	Onwards bool          // the nth and all later ones
}

func (f Fault) matches(machine string, kind Kind, nth int) bool {
	if f.Kind != kind || (f.Machine != "" && f.Machine != machine) {
		return false
	}
	return f.Nth == 0 || nth == f.Nth || (f.Onwards && nth > f.Nth)
}

// Script is a list of faults; the first that matches an effect counts.
type Script []Fault

func (s Script) find(machine string, kind Kind, nth int) Fault {
	for _, f := range s {
		if f.matches(machine, kind, nth) {
			return f
		}
	}
	return Fault{}
}

// ParseScript reads faults separated by commas, each
//
//	[machine/]kind:mode[=duration][@n[+]]
//
// such as "reboot:fail-before@1, reboot:never@2+, m-3/repave:late=2s". Kinds are those of the effects; netboot
// stands for bootnext, and reconfig for hostname and firewall. @n is the nth time that this effect is asked of
// that machine, @n+ that and every later time, and without it every time. The empty script has no faults.
func ParseScript(text string) (Script, error) {
	var s Script
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		faults, err := parseFault(part)
		if err != nil {
			return nil, fmt.Errorf("read fault %q: %w", part, err)
		}
		s = append(s, faults...)
	}
	return s, nil
}

func parseFault(part string) ([]Fault, error) {
	what, how, ok := strings.Cut(part, ":")
	if !ok {
		return nil, fmt.Errorf("want kind:mode")
	}
	f := Fault{}
	if i := strings.LastIndex(what, "/"); i >= 0 {
		f.Machine, what = what[:i], what[i+1:]
	}
	kinds, ok := kindsByName[what]
	if !ok {
		return nil, fmt.Errorf("unknown kind %q, want one of %s", what, strings.Join(kindNames(), ", "))
	}
	how, err := f.parseNth(how)
	if err != nil {
		return nil, err
	}
	if err := f.parseMode(how); err != nil {
		return nil, err
	}
	out := make([]Fault, len(kinds))
	for i, k := range kinds {
		out[i] = f
		out[i].Kind = k
	}
	return out, nil
}

func (f *Fault) parseNth(how string) (rest string, err error) {
	how, nth, ok := strings.Cut(how, "@")
	if !ok {
		return how, nil
	}
	nth, f.Onwards = strings.CutSuffix(nth, "+")
	f.Nth, err = strconv.Atoi(nth)
	if err != nil || f.Nth < 1 {
		return "", fmt.Errorf("%q after @ is not a count from 1", nth)
	}
	return how, nil
}

func (f *Fault) parseMode(how string) error {
	mode, after, timed := strings.Cut(how, "=")
	f.Mode = Mode(mode)
	if !slices.Contains(modes, f.Mode) {
		return fmt.Errorf("unknown mode %q, want one of %s", mode, modeNames())
	}
	if timed != (f.Mode == Late) {
		return fmt.Errorf("late takes a duration (late=2s), and no other mode does")
	}
	if !timed {
		return nil
	}
	d, err := time.ParseDuration(after)
	if err != nil {
		return fmt.Errorf("parse duration: %w", err)
	}
	if d <= 0 {
		return fmt.Errorf("duration %v is not positive", d)
	}
	f.After = d
	return nil
}

func kindNames() []string {
	names := make([]string, 0, len(kindsByName))
	for n := range kindsByName {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func modeNames() string {
	names := make([]string, len(modes))
	for i, m := range modes {
		names[i] = string(m)
	}
	return strings.Join(names, ", ")
}
