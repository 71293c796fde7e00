package bmc

import (
	"net/http"
	"strings"
	"sync"
	"time"
)

// Shape is what makes a Redfish service another than one that does all by the plain schema. The zero value is plain.
type Shape struct {
	// System is the last part of the system's path; empty means "1".
	System string
	// Baseboard is the name of a second system, which can't be switched; empty means none.
	Baseboard string
	// NoInterfaces: the system links to no Ethernet interfaces.
	NoInterfaces bool

	// Settings is the name of the system's settings object (DSP0266, "Settings resource"); empty means none.
	Settings string
	// SettingsBoot: the settings object has the boot override. A setting that is written there takes effect at the next
	// reset.
	SettingsBoot bool
	// Later: a change of the settings object is answered with 202, and shows nowhere before the next reset.
	Later bool
	// BootRefused is the message id with which the system refuses a change of Boot; empty means that it takes it.
	BootRefused string
	// SystemTargets and SettingsTargets are the lists of BootSourceOverrideTarget; nil is what the machine has, an empty
	// one is none.
	SystemTargets, SettingsTargets []string
	// MatchNeeded: changes need If-Match with the entity tag, and "*" is none.
	MatchNeeded bool

	// NoMode: the system has no BootSourceOverrideMode. ModeForgotten: an order without it goes back to Legacy.
	// ModeRefused: one with it is refused.
	NoMode, ModeForgotten, ModeRefused bool
	// TargetNeeded: to disable the override without naming a target, or with None, is refused.
	TargetNeeded bool

	// Continuous: the order for one boot is kept for every boot, and shows so, until another device is named. Only a
	// device counts: to disable the override is no order.
	Continuous bool

	// Page is how many members a page of a collection has; 0 means all. Ghost is the last part of the path of a member
	// that every collection lists first and that answers 404; empty means none.
	Page  int
	Ghost string

	// Accounts is how it keeps accounts.
	Accounts Accounts
	// Media is how it attaches images.
	Media Media

	// Slashes: requests for a path without a slash at its end are redirected to the one with it, whatever their method.
	Slashes bool
	// Slow is how long each answer takes longer.
	Slow time.Duration
	// SessionsFull is the status with which every log-in is refused because there are sessions enough; 0 means never.
	SessionsFull int
}

// IDRAC9 is a PowerEdge whose settings object is for other things: it has no BootSourceOverrideTarget.
// Source: github.com/NVIDIA/libredfish, tests/mockups/dell_multi_dpu/redfish/v1/Systems/System.Embedded.1 and Settings
// below it, a recording.
var IDRAC9 = Shape{System: "System.Embedded.1", Settings: "Settings", Accounts: Accounts{Slots: 16, Longest: 20},
	Media: Media{Names: []string{"CD", "RemovableDisk"}, Occupied: 500}}

// IDRAC10 is a PowerEdge R570: Boot is read-only in the system, and to be changed in the settings object, where alone
// the targets are listed.
// Source: github.com/ansible-collections/community.general, issue 11297; github.com/dell/iDRAC-Redfish-Scripting, issue
// 324.
var IDRAC10 = Shape{
	System: "System.Embedded.1", Settings: "Settings", SettingsBoot: true, BootRefused: "Base.1.18.PropertyNotWritable",
	SystemTargets: []string{}, Accounts: Accounts{Slots: 16, Longest: 20},
	Media: Media{OfSystem: true, Names: []string{"1", "2"}, Occupied: 400},
}

// ThinkSystem changes an account with its entity tag alone.
// Source: github.com/ansible/ansible, issue 56050.
var ThinkSystem = Shape{Accounts: Accounts{MatchNeeded: true, EndsSessions: true},
	Media: Media{NoAction: true, Names: []string{"EXT1"}}}

// AMIDGX is the AMI firmware of a DGX H100: two systems, one of which is the GPUs' board; the override is in SD alone,
// and is written with the entity tag.
// Source: github.com/NVIDIA/libredfish, tests/mockups/nvidia_viking/redfish/v1/Systems (a recording) and
// set_boot_override in src/nvidia_viking.rs; the refusal is from github.com/DMTF/Redfish-Tacklebox, issue 144.
var AMIDGX = Shape{
	System: "DGX", Baseboard: "HGX_Baseboard_0", Settings: "SD", SettingsBoot: true,
	BootRefused: "Ami.1.0.OperationSupportedInFutureStateURI", SystemTargets: []string{}, MatchNeeded: true, NoMode: true,
	Accounts: Accounts{MatchNeeded: true, BodyTag: true},
	Media:    Media{ProtocolNeeded: true, MethodNeeded: true, NameOnly: true, Late: 2, Names: []string{"CD1"}},
}

// BlueField is a DPU: its settings object lists targets that differ from the system's, which has UefiHttp.
// Source: github.com/NVIDIA/libredfish, tests/mockups/nvidia_dpu/redfish/v1/Systems/Bluefield, a recording; that a
// reset applies the settings: docs.nvidia.com, BlueField BMC Software 24.10, "Boot Configuration".
var BlueField = Shape{
	System: "Bluefield", Settings: "Settings", SettingsBoot: true, BootRefused: "Base.1.18.PropertyNotWritable",
	SystemTargets:   []string{"None", "Pxe", "UefiHttp", "UefiShell", "UefiTarget", "UefiBootNext"},
	SettingsTargets: []string{"None", "Pxe", "Hdd", "Cd", "Diags", "BiosSetup", "Usb"},
	Media:           Media{SecureOnly: true, Names: []string{"USB1"}},
}

// GB200 has the machine beside its GPUs' board, and links neither to Ethernet interfaces.
// Source: github.com/NVIDIA/libredfish, tests/mockups/nvidia_gb200/redfish/v1/Systems; github.com/spyroot/redfish_ctl,
// tests/supermicro_fixtures: recordings.
var GB200 = Shape{
	System: "System_0", Baseboard: "HGX_Baseboard_0", NoInterfaces: true, Settings: "Settings", SettingsBoot: true,
	NoMode: true,
}

// SupermicroMode goes back to Legacy when an order doesn't name the mode.
// Source: github.com/DMTF/Redfishtool, pull request 106.
var SupermicroMode = Shape{
	ModeForgotten: true,
	Media:         Media{ImageOnly: true, Stale: true, Names: []string{"VirtualMedia1"}},
}

// ILO takes no order that names the mode, and disables the override only together with a target.
// Source: github.com/ansible-collections/community.general, issue 3509; github.com/ironcore-dev/metal-operator, pull
// request 998.
var ILO = Shape{ModeRefused: true, TargetNeeded: true, Media: Media{OEM: "Hp", ImageOnly: true,
	Names: []string{"1", "2"}, Floppy: true}}

// Slashed answers no path that does not end with a slash, although its own links don't: it redirects all of them,
// log-ins too. Source: github.com/PegaProx/project-pegaprox, issue 609 (Lenovo x3650 M5, 301);
// github.com/bb-Ricardo/check_redfish, pull request 187 (log-ins at older Supermicro BMCs).
var Slashed = Shape{Slashes: true}

// SushyTools makes a choice for every boot of whatever is ordered.
// Source: opendev.org/openstack/sushy-tools, sushy_tools/emulator/main.py (PATCH of a system) and
// templates/system.json; it drives the virtual machines of libvirt.
var SushyTools = Shape{Continuous: true, TargetNeeded: true, Accounts: Accounts{None: true}}

// SlowBMC takes 4.5 s for each answer. Sources: github.com/xcat2/xcat-core, issue 3310 (12 s for a first log-in). The
// other is our own measurement of a client whose log-in times out after 20 s.
var SlowBMC = Shape{Slow: 4500 * time.Millisecond}

// NoSessions has no place for a session, and takes the password with each request.
// Source: github.com/bb-Ricardo/check_redfish, issue 89 (iDRAC, 503), and the message SessionLimitExceeded of the
// DMTF's Base registry, which names no status.
var NoSessions = Shape{SessionsFull: http.StatusBadRequest, Media: Media{None: true}}

// Asynchronous answers a change of the settings object with 202 and shows it once it is done, at the next reset.
// Source: DSP0266 1.15, "PATCH" and "Asynchronous operations".
var Asynchronous = Shape{Settings: "Settings", SettingsBoot: true, Later: true,
	BootRefused: "Base.1.15.PropertyNotWritable", Accounts: Accounts{Later: true}}

// Paged serves collections in pages of one member (DSP0266 1.15, "Paging"), and lists members that are gone. Source:
// github.com/bmc-toolbox/bmclib, fixtures of an iDRAC whose chassis is linked and not there.
var Paged = Shape{Page: 1, Ghost: "Gone"}

// Shapes are all of them, by the name that the documentation has for them.
var Shapes = map[string]Shape{
	"plain": {}, "iDRAC9": IDRAC9, "iDRAC10": IDRAC10, "AMI DGX": AMIDGX, "BlueField": BlueField, "GB200": GB200,
	"Supermicro mode": SupermicroMode, "iLO": ILO, "trailing slashes": Slashed, "asynchronous": Asynchronous,
	"slow":        SlowBMC,
	"paged":       Paged,
	"ThinkSystem": ThinkSystem, "sushy-tools": SushyTools, "no sessions": NoSessions,
}

func (s Shape) system() string {
	if s.System == "" {
		return systemsPath + "/1"
	}
	return systemsPath + "/" + s.System
}

func (s Shape) systems() []string {
	if s.Baseboard == "" {
		return []string{s.system()}
	}
	return []string{s.system(), systemsPath + "/" + s.Baseboard}
}

// pendingBoot is what the settings object holds, and the mode that was ordered last.
type pendingBoot struct {
	mu   sync.Mutex
	boot Boot
	set  bool
	mode string
	// always is the device of every boot, where the service has no other; BootNone is the disk.
	always Boot
}

func (p *pendingBoot) keepAlways(b Boot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.always = b
}

func (p *pendingBoot) everyBoot() Boot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.always
}

// pend keeps an order for the next reset.
func (p *pendingBoot) pend(b Boot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.boot, p.set = b, true
}

// take returns the pending setting to a reset, once.
func (p *pendingBoot) take() (b Boot, set bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, set = p.boot, p.set
	p.boot, p.set = BootNone, false
	return b, set
}

func (p *pendingBoot) get() Boot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.boot
}

func (p *pendingBoot) orderMode(mode string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = mode
}

func (p *pendingBoot) modeOr(mode string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == "" {
		return mode
	}
	return p.mode
}

// settings is the settings object. Without the boot override it still has a Boot, as iDRAC9's has.
func (r *Redfish) settings() object {
	shape := r.cfg.Shape
	boot := object{"BootSourceOverrideMode": nil, "UefiTargetBootSourceOverride": nil}
	if shape.SettingsBoot {
		once := r.pending.get()
		if shape.Later {
			once = BootNone
		}
		boot = r.boot(once, r.targets(shape.SettingsTargets))
	}
	return entity(shape.system()+"/"+shape.Settings, "ComputerSystem.v1_20_0.ComputerSystem", shape.Settings,
		object{"Boot": boot})
}

// patchSettings keeps the override for the next reset.
func (r *Redfish) patchSettings(w http.ResponseWriter, req *http.Request) {
	shape := r.cfg.Shape
	in, ok := r.readPatch(w, req, r.settings())
	switch {
	case !ok:
		return
	case !shape.SettingsBoot:
		refuse(w, http.StatusBadRequest, "PropertyUnknown",
			"The property Boot/BootSourceOverrideTarget is not in the list of valid properties for the resource.")
		return
	}
	boot, change, err := r.wantedBoot(in)
	if err != nil {
		refuse(w, http.StatusBadRequest, "PropertyValueNotInList", err.Error())
		return
	}
	if change && !r.desk.lying() {
		r.pending.pend(boot)
	}
	if shape.Later {
		w.Header().Set("Location", rootPath+"/TaskService/Tasks/1")
		w.WriteHeader(http.StatusAccepted)
		return
	}
	r.answer(w, req, r.settings())
}

// baseboard is the GPUs' board: a system that can't be switched and has no boot.
func (r *Redfish) baseboard() object {
	name := r.cfg.Shape.Baseboard
	return entity(systemsPath+"/"+name, "ComputerSystem.v1_22_0.ComputerSystem", name, object{
		"SystemType": "Physical", "Manufacturer": "NVIDIA", "PowerState": "On", "Status": healthy(),
		"UUID": "c01dc250-5678-11ed-9b6a-0242ac120002", "SerialNumber": "1653125034241",
	})
}

// BootMode is BootSourceOverrideMode as it was ordered last, or the firmware's own.
func (r *Redfish) BootMode() string { return r.pending.modeOr(firmware(r.cfg.Chassis.About().UEFI)) }

// slashed redirects a request to its path with a slash, where this service wants one, and takes the slash away for the
// routes. It reports whether the request goes on.
func (r *Redfish) slashed(w http.ResponseWriter, req *http.Request) bool {
	path := req.URL.Path
	if !r.cfg.Shape.Slashes || path == "/redfish" || path == rootPath+"/" {
		return true
	}
	if !strings.HasSuffix(path, "/") {
		w.Header().Set("Location", path+"/")
		w.WriteHeader(http.StatusMovedPermanently)
		return false
	}
	req.URL.Path = strings.TrimSuffix(path, "/")
	return true
}
