package bmc

import (
	"cmp"
	"sync"
	"time"
)

// Faults is how a BMC misbehaves. The zero value is a good one.
type Faults struct {
	// Silent accepts connections and never answers.
	Silent bool
	// Liar accepts every change with a good answer and changes nothing.
	Liar bool
	// Broken answers everything behind the service root with 500.
	Broken bool
	// Slow is how long each answer takes longer.
	Slow time.Duration
	// LockAfter is after how many wrong passwords in a row the account is locked; 0 means never.
	LockAfter int
	// SessionLimit is the status with which NoSessions answers; 0 means 503. iDRAC's message is RAC0218, with 503 in
	// github.com/stmcginnis/gofish, issue 75; SessionLimitExceeded is of the DMTF's Base registry, which names no status.
	SessionLimit int
	// WrongPassword is the status of a log-in with a wrong password; 0 means 401. iLO answers 400: github.com/DMTF/
	// Redfish-Service-Validator, pull request 207, and github.com/canonical/hardware-observer-operator, issue 47.
	WrongPassword int
	// NoSessions answers every new session with 503, as a BMC whose table of sessions is full does.
	NoSessions bool
	// PasswordCut cuts the connection of the next change of the password.
	PasswordCut Cut
	// NoInput is a second power supply whose cord is out: critical and UnavailableOffline, as OpenBMC has it
	// (github.com/ibm-openbmc/bmcweb, pull request 1281) and iDRAC (github.com/mrlhansen/idrac_exporter, issue 105).
	NoInput bool
	// BadModule is a memory module that is critical. The system's MemorySummary is critical too (DSP0268, ComputerSystem).
	BadModule bool
}

// Cut is where a connection is cut, beside the change that it asks for.
type Cut int

// Where a connection is cut.
const (
	CutNever Cut = iota
	CutBefore
	CutAfter
)

// Counts is what came in.
type Counts struct {
	Requests int
	// WrongPasswords counts the log-ins with a name or password that isn't the right one, locked or not.
	WrongPasswords int
	// Sessions counts the log-ins that opened a session.
	Sessions int
	// PasswordChanges counts the changes of the password over the service itself.
	PasswordChanges int
	// Resets counts the resets that were accepted.
	Resets int
	Locked bool
	// Open is how many sessions there are now.
	Open int
	// AtOnce is the highest number of requests that were being served at the same time.
	AtOnce int
}

// desk knows the account, the sessions and the faults of one BMC.
type desk struct {
	mu       sync.Mutex
	user     string
	password string
	faults   Faults
	counts   Counts
	wrong    int               // in a row
	sessions map[string]string // token by session id
	next     int
	serving  int
}

func (d *desk) set(f Faults) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = f
}

// now returns the faults.
func (d *desk) now() Faults {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.faults
}

// status is that of a fault, or the usual one.
func (d *desk) status(of func(Faults) int, usual int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return cmp.Or(of(d.faults), usual)
}

func (d *desk) arrived() Faults {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts.Requests++
	d.serving++
	d.counts.AtOnce = max(d.counts.AtOnce, d.serving)
	return d.faults
}

func (d *desk) left() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.serving--
}

func (d *desk) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts.Resets++
}

func (d *desk) counted() Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.counts
	c.Open = len(d.sessions)
	return c
}

// login reports whether name and password are right; a locked account's never are.
func (d *desk) login(user, password string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	right := user == d.user && password == d.password
	if !right {
		d.counts.WrongPasswords++
		d.wrong++
		d.counts.Locked = d.counts.Locked || d.faults.LockAfter > 0 && d.wrong >= d.faults.LockAfter
		return false
	}
	if !d.counts.Locked {
		d.wrong = 0
	}
	return !d.counts.Locked
}
