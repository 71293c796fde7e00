package ipmi

import (
	"slices"

	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/ingot-metal/ingot/agent/provider"
)

// How well a part is.
const (
	ok       = "ok"
	warning  = "warning"
	critical = "critical"
)

// marks are the letters of the tables below, one for each offset of a sensor.
var marks = map[byte]string{'c': critical, 'w': warning, 'o': ok}

// specific is the health by offset of a sensor-specific sensor (event/reading type 6Fh): c critical, w warning, o well,
// and a dot for none. The offsets are those of IPMI 2.0, table 42-3, in the reading of ipmitool
// (include/ipmitool/ipmi_sel.h, sensor_specific_event_types), which judges none. Actions of a person, an operating
// system or a log are no fault of the hardware, nor is an empty slot.
var specific = map[types.SensorType]string{
	0x05: ".......",         // physical security: chassis, drive bay, card, processor and fan area open; unplugged; dock
	0x06: "......",          // platform security: passwords that were tried
	0x07: "ccccccco..wcw",   // processor: IERR to uncorrectable, present, disabled, terminator, throttled, machine checks
	0x08: "ocwccww.",        // supply: present, failed, predicted, no input (2), bad input, configuration, standby
	0x09: "..c.cccw",        // power unit: off, cycle, 240 VA, interlock, no input, control failed, failed, predicted
	0x0c: "wcccwwow.wc",     // memory: ECC, parity, scrub, disabled, limit, present, configuration, spare, throttled, hot
	0x0d: "ocw..wcww",       // drive: present, fault, predicted, spare, check, array critical, failed, rebuild, aborted
	0x0f: "ww.",             // firmware: error, hang, progress
	0x10: "......",          // event log: disabled, cleared, full, almost full
	0x11: "........",        // watchdog 1
	0x12: "..c...",          // system event: the third is a hardware failure that is not determined
	0x13: ".wc.cccwcccw",    // interrupt: front panel NMI, bus time-out, I/O check, software NMI, PERR, SERR, bus errors
	0x14: ".....",           // buttons, latch, service
	0x19: "cc",              // chip set: power control failed, thermal trip
	0x1b: "ow",              // cable: connected, wrongly
	0x1d: "........",        // boot initiated
	0x1e: ".....",           // boot error: no medium, no PXE server
	0x1f: "...........",     // operating system booted, or was installed
	0x20: "......",          // operating system stopped
	0x21: "c.o.......",      // slot: fault, identify, filled, ready to be filled or emptied, off, disabled, spare
	0x22: "...............", // ACPI state of the system
	0x23: ".........",       // watchdog 2
	0x24: "....",            // platform alert
	0x25: "o..",             // entity: present, absent, disabled
	0x27: ".o",              // LAN heartbeat: lost, there
	0x28: "wwwwwc",          // management: sensor, controller; the last is a part that has failed
	0x29: "wco",             // battery: low, failed, present
	0x2a: "....",            // sessions
	0x2b: "..wwww..",        // versions: changed, incompatible, unsupported, changed well
	0x2c: "....o..w",        // replaceable unit: not installed, inactive, to active, active, to inactive, lost
}

// generic is the same for the types 02h to 0Ch, whose offsets mean the same with every sensor (table 42-2; ipmitool's
// generic_event_types). Vendors use "asserted" and "exceeded" as they like, so that those say nothing.
var generic = map[types.EventReadingType]string{
	0x02: "...",       // idle, active, busy
	0x03: "..",        // deasserted, asserted
	0x04: "ow",        // a failure is predicted
	0x05: "..",        // limit
	0x06: "..",        // performance
	0x07: "owccwcc..", // severity
	0x08: ".o",        // absent, present
	0x09: ".o",        // disabled, enabled
	0x0a: "......w.w", // availability: degraded, install error
	0x0b: "owww.cww",  // redundancy: full, lost, degraded, sufficient from full, from less, insufficient, degraded
	0x0c: "....",      // ACPI states of a device
}

// Offsets of a power supply (08h): that it is there, and those that say what comes in.
const (
	supplyThere = 0
	firstInput  = 3
	lastInput   = 5
)

// worth returns the health of a part in one state of its sensor; empty where the state is no sign of it.
func worth(kind types.EventReadingType, of types.SensorType, offset uint8) string {
	table := generic[kind]
	if kind == types.EventReadingTypeSensorSpecific {
		table = specific[of]
	}
	if int(offset) >= len(table) {
		return ""
	}
	return marks[table[offset]]
}

// judge returns the worst health of the active states. A power supply whose state for its presence is not active may be
// an empty bay. That has no input, too: whether a missing input is a fault is then unknown.
func judge(kind types.EventReadingType, of types.SensorType, active, possible []uint8) (health string) {
	gone := kind == types.EventReadingTypeSensorSpecific && of == types.SensorTypePowerSupply &&
		slices.Contains(possible, supplyThere) && !slices.Contains(active, supplyThere)
	for _, offset := range active {
		said := worth(kind, of, offset)
		if gone && offset >= firstInput && offset <= lastInput {
			said = provider.HealthUnknown
		}
		health = worse(health, said)
	}
	return health
}

// worse is the graver of two.
func worse(a, b string) string {
	for _, h := range []string{critical, warning, provider.HealthUnknown, ok} {
		if a == h || b == h {
			return h
		}
	}
	return ""
}
