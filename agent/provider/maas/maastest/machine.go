package maastest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// Machine is a machine as the region has it. Tests set what they need before they add it.
type Machine struct {
	SystemID, Hostname, Owner string
	MACs                      []string
	Status                    ms.Status
	// StatusMessage of a machine that is added becomes its newest event.
	StatusMessage string
	Serial        string
	// PowerType is "manual" where MAAS has no driver; Power is "on" or "off".
	PowerType, Power string
	Series           string
	Annotations      map[string]string
	Locked           bool
	// NoBootDisk, NoBootNIC: commissioning found none.
	NoBootDisk, NoBootNIC bool
	// BootMode is the address mode of the first interface: "auto", "link_up" or "" for no link. Subnet is where it is.
	BootMode string
	Subnet   int
	// Fabric are the MAC addresses of interfaces that are tagged roce, FabricMode their address mode.
	Fabric     []string
	FabricMode string
	Layout     string
	HWSync     bool
	SyncDead   bool
	CPUs       int
	MemoryMiB  int64
	DiskSerial string
	// FailCommission, FailTest, FailDeploy, FailErase and FailRelease make the next such work fail, with the message; an
	// element each.
	FailCommission, FailTest, FailDeploy, FailErase, FailRelease []string
	// NoSwitch takes what switches the machine on or off, and does nothing.
	NoSwitch bool
	// Uncommissioned: no commissioning of the machine has passed.
	Uncommissioned bool
	// SkipErase releases without erasing, whatever is asked.
	SkipErase bool
	// Stuck work never ends; StuckIn is where it does not.
	Stuck   bool
	StuckIn ms.Status

	before ms.Status
	due    time.Time
	then   func()
	// aborting: what ends the work stops the machine first.
	aborting bool
	// erased counts the erasures that ended well.
	erased int
}

// addressed reports whether the machine boots from an interface that has an address.
func (m *Machine) addressed() bool {
	return !m.NoBootNIC && m.BootMode != "" && m.BootMode != "link_up"
}

// Halt ends the work that is under way, without an end.
func (m *Machine) Halt() { m.then, m.aborting = nil, false }

// Erased counts the full erasures of the machine that have ended well.
func (m Machine) Erased() int { return m.erased }

// Add puts a machine into the region, and returns its system id. A machine in use without an Owner belongs to the key's
// user.
func (r *Region) Add(m Machine) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.Owner == "" && !slices.Contains(ownerless, m.Status) {
		m.Owner = User
	}
	added := r.add(&m)
	if m.StatusMessage != "" {
		r.log(added, failed, "Marking node failed", m.StatusMessage)
	}
	return added.SystemID
}

// ownerless are the statuses of machines without an owner.
var ownerless = []ms.Status{ms.New, ms.FailedCommissioning, ms.Missing, ms.Ready, ms.Retired}

func (r *Region) add(m *Machine) *Machine {
	r.next++
	m.SystemID = fmt.Sprintf("sys%03d", r.next)
	if m.PowerType == "" {
		m.PowerType = "ipmi"
	}
	if m.Power == "" {
		m.Power = "off"
		if m.Status == ms.Deployed {
			m.Power = "on"
		}
	}
	if m.DiskSerial == "" {
		m.DiskSerial = "disk-" + m.SystemID
	}
	if m.CPUs == 0 {
		m.CPUs, m.MemoryMiB = 8, 32768
	}
	if m.Subnet == 0 {
		m.Subnet = 7
	}
	if m.Layout == "" {
		m.Layout = "flat"
	}
	r.machines = append(r.machines, m)
	return m
}

// Get returns a machine as it is now; ok is false when there is none.
func (r *Region) Get(systemID string) (Machine, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.find(systemID); m != nil {
		return *m, true
	}
	return Machine{}, false
}

// ByMAC returns the machine with a MAC address as it is now.
func (r *Region) ByMAC(mac string) (Machine, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.machines {
		if slices.Contains(m.MACs, mac) {
			r.settle(m)
			return *m, true
		}
	}
	return Machine{}, false
}

// Change does something to a machine behind everybody's back.
func (r *Region) Change(systemID string, change func(*Machine)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.find(systemID); m != nil {
		change(m)
	}
}

// Lose deletes a machine behind everybody's back.
func (r *Region) Lose(systemID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(systemID)
}

// Before calls act once, just before the region reads the next request of an op: another client was quicker.
func (r *Region) Before(op string, act func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quicker[op] = act
}

// Released calls act with every machine that has just been released: another client waits for it.
func (r *Region) Released(act func(*Machine)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.released = act
}

func (r *Region) drop(systemID string) {
	r.machines = slices.DeleteFunc(r.machines, func(m *Machine) bool { return m.SystemID == systemID })
}

func (r *Region) find(systemID string) *Machine {
	for _, m := range r.machines {
		if m.SystemID == systemID {
			r.settle(m)
			return m
		}
	}
	return nil
}

// settle lets work that is due have ended.
func (r *Region) settle(m *Machine) {
	for m.then != nil && (m.aborting || !m.Stuck && (m.StuckIn == 0 || m.StuckIn != m.Status)) &&
		!r.cfg.Clock.Now().Before(m.due) {
		then := m.then
		m.then = nil
		then()
	}
}

// after does what follows when the work has taken its time.
func (r *Region) after(m *Machine, then func()) {
	m.due, m.then = r.cfg.Clock.Now().Add(r.cfg.Delay), then
}

// fails takes the next message of a list of failures.
func fails(list *[]string) (string, bool) {
	if len(*list) == 0 {
		return "", false
	}
	text := (*list)[0]
	*list = (*list)[1:]
	return text, true
}

func lower(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, strings.ToLower(s))
	}
	return out
}
