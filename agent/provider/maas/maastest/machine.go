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
	StatusMessage             string
	Serial                    string
	PowerType, Power          string
	Series                    string
	Annotations               map[string]string
	Locked                    bool
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
	// FailCommission, FailTest, FailDeploy, FailErase and FailRelease make the next such work fail, with the message; an element
	// each.
	FailCommission, FailTest, FailDeploy, FailErase, FailRelease []string
	// NoSwitch takes what switches the machine on or off, and does nothing.
	NoSwitch bool
	// SkipErase releases without erasing, whatever is asked.
	SkipErase bool
	// Stuck work never ends; StuckIn is where it does not.
	Stuck   bool
	StuckIn ms.Status

	before ms.Status
	due    time.Time
	then   func()
}

// logged is one line of the region's log of a machine.
type logged struct {
	id                    int
	systemID, description string
}

// Add puts a machine into the region, and gives its system id.
func (r *Region) Add(m Machine) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.add(&m).SystemID
}

func (r *Region) add(m *Machine) *Machine {
	r.next++
	m.SystemID = fmt.Sprintf("sys%03d", r.next)
	if m.PowerType == "" {
		m.PowerType = "ipmi"
	}
	if m.Power == "" {
		m.Power = "off"
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
	r.machines = append(r.machines, m)
	return m
}

// Get gives a machine as it is now; ok is false when there is none.
func (r *Region) Get(systemID string) (Machine, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.find(systemID); m != nil {
		return *m, true
	}
	return Machine{}, false
}

// ByMAC gives the machine with a MAC address as it is now.
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
	for m.then != nil && !m.Stuck && (m.StuckIn == 0 || m.StuckIn != m.Status) && !r.cfg.Clock.Now().Before(m.due) {
		then := m.then
		m.then = nil
		then()
	}
}

// move changes the status, and writes the line that MAAS writes.
func (r *Region) move(m *Machine, to ms.Status) {
	from, _ := ms.Of(m.Status)
	into, _ := ms.Of(to)
	m.Status, m.StatusMessage = to, ""
	r.log(m, fmt.Sprintf("From '%s' to '%s'", from.Name, into.Name))
}

func (r *Region) log(m *Machine, text string) {
	r.events = append(r.events, logged{len(r.events) + 1, m.SystemID, text})
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

func (r *Region) failed(m *Machine, to ms.Status, text string) {
	r.move(m, to)
	m.StatusMessage = text
	r.log(m, text)
}

func (r *Region) commission(m *Machine) {
	m.before = m.Status
	r.move(m, ms.Commissioning)
	m.Power = "on"
	r.after(m, func() {
		if text, bad := fails(&m.FailCommission); bad {
			r.failed(m, ms.FailedCommissioning, text)
			return
		}
		r.move(m, ms.Testing)
		r.after(m, func() {
			if text, bad := fails(&m.FailTest); bad {
				r.failed(m, ms.FailedTesting, text)
				return
			}
			r.move(m, ms.Ready)
			m.Power = "off"
		})
	})
}

func (r *Region) deploy(m *Machine, series string, sync bool) {
	r.move(m, ms.Deploying)
	m.Power = "on"
	r.after(m, func() {
		if text, bad := fails(&m.FailDeploy); bad {
			r.failed(m, ms.FailedDeployment, text)
			return
		}
		m.Series, m.HWSync = series, sync
		if m.Series == "" {
			m.Series = "noble"
		}
		r.move(m, ms.Deployed)
	})
}

func (r *Region) release(m *Machine, erase bool) {
	ready := func() {
		if text, bad := fails(&m.FailRelease); bad {
			r.failed(m, ms.FailedReleasing, text)
			return
		}
		r.move(m, ms.Ready)
		m.Owner, m.Annotations, m.Series, m.HWSync = "", nil, "", false
		if !m.NoSwitch {
			m.Power = "off"
		}
	}
	if !erase || m.SkipErase {
		r.move(m, ms.Releasing)
		r.after(m, ready)
		return
	}
	r.move(m, ms.DiskErasing)
	m.Power = "on"
	r.after(m, func() {
		if text, bad := fails(&m.FailErase); bad {
			r.failed(m, ms.FailedDiskErasing, text)
			return
		}
		r.move(m, ms.Releasing)
		r.after(m, ready)
	})
}

func (r *Region) abort(m *Machine) {
	to := map[ms.Status]ms.Status{
		ms.Commissioning: m.before, ms.Testing: m.before, ms.Deploying: ms.Allocated, ms.DiskErasing: ms.FailedDiskErasing,
		ms.EnteringRescueMode: m.before, ms.ExitingRescueMode: ms.RescueMode,
	}[m.Status]
	m.then = nil
	r.move(m, to)
}

func (r *Region) rescue(m *Machine, into bool) {
	if into {
		m.before = m.Status
		r.move(m, ms.EnteringRescueMode)
		r.after(m, func() { r.move(m, ms.RescueMode) })
		return
	}
	r.move(m, ms.ExitingRescueMode)
	r.after(m, func() { r.move(m, m.before) })
}

func lower(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, strings.ToLower(s))
	}
	return out
}
