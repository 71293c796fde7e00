package bmc

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

var powerWords = map[Power]string{On: "On", Off: "Off"}

// bootWords are the values of BootSourceOverrideTarget (DSP2046, ComputerSystem).
var bootWords = map[Boot]string{BootNone: "None", BootPXE: "Pxe", BootHTTP: "UefiHttp", BootDisk: "Hdd",
	BootMedia: "Cd"}

// resets are what each value of ResetType does, one after the other.
var resets = map[string][]Switch{
	"On": {PowerOn}, "ForceOn": {PowerOn}, "ForceOff": {ForceOff}, "GracefulShutdown": {SoftOff},
	"ForceRestart": {ForceOff, PowerOn}, "PowerCycle": {ForceOff, PowerOn},
}

func resetTypes() []string {
	var out []string
	for name := range resets {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func (r *Redfish) bootTargets() []string {
	out := []string{"None", "Pxe", "Hdd", "Cd"}
	if r.cfg.Chassis.About().UEFI {
		out = append(out, "UefiHttp")
	}
	return out
}

func (r *Redfish) system(ctx context.Context) (object, error) {
	power, err := r.cfg.Chassis.PowerState(ctx)
	if err != nil {
		return nil, err
	}
	once, err := r.cfg.Chassis.BootOnce(ctx)
	if err != nil {
		return nil, err
	}
	about, shape := r.cfg.Chassis.About(), r.cfg.Shape
	if shape.Continuous {
		once = r.pending.everyBoot()
	}
	path := shape.system()
	doc := entity(path, "ComputerSystem.v1_20_0.ComputerSystem", path[len(systemsPath)+1:], object{
		"Name": about.Name, "SystemType": "Physical", "Manufacturer": about.vendor(), "Model": about.model(),
		"UUID": about.UUID, "SerialNumber": about.Serial, "PowerState": powerWords[power], "Status": healthy(),
		"IndicatorLED": r.led.get(), "LocationIndicatorActive": r.led.get() == "Lit",
		"Boot":               r.boot(once, r.targets(shape.SystemTargets)),
		"EthernetInterfaces": link(path + "/EthernetInterfaces"),
		"Links":              object{"ManagedBy": []object{link(managerPath)}, "Chassis": []object{link(chassisPath)}},
		"Actions": object{"#ComputerSystem.Reset": object{
			"target": path + resetPart, "ResetType@Redfish.AllowableValues": resetTypes(),
		}},
	})
	doc["Memory"], doc["MemorySummary"] = link(path+"/Memory"), object{"Status": healthy()}
	if r.desk.now().BadModule {
		doc["MemorySummary"] = object{"Status": object{"State": "Enabled", "HealthRollup": "Critical"}}
	}
	if shape.Settings != "" {
		doc["@Redfish.Settings"] = object{
			"@odata.type": "#Settings.v1_3_5.Settings", "SettingsObject": link(path + "/" + shape.Settings),
			"SupportedApplyTimes": []string{"OnReset"},
		}
	}
	if shape.Media.OfSystem && r.hasMedia() {
		doc["VirtualMedia"] = link(r.mediaPath())
	}
	if shape.NoInterfaces {
		delete(doc, "EthernetInterfaces")
	}
	return doc, nil
}

// targets are those of a list; nil stands for what the machine has.
func (r *Redfish) targets(list []string) []string {
	if list == nil {
		return r.bootTargets()
	}
	return list
}

func (r *Redfish) boot(once Boot, targets []string) object {
	boot := object{
		"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": bootWords[once],
		"UefiTargetBootSourceOverride":                      nil,
		"BootSourceOverrideEnabled@Redfish.AllowableValues": []string{"Disabled", "Once"},
	}
	if len(targets) > 0 {
		boot["BootSourceOverrideTarget@Redfish.AllowableValues"] = targets
	}
	if !r.cfg.Shape.NoMode {
		boot["BootSourceOverrideMode"] = r.pending.modeOr(firmware(r.cfg.Chassis.About().UEFI))
	}
	if once != BootNone {
		boot["BootSourceOverrideEnabled"] = "Once"
	}
	if r.cfg.Shape.Continuous {
		boot["BootSourceOverrideEnabled"] = "Continuous"
		if once == BootNone {
			boot["BootSourceOverrideTarget"] = bootWords[BootDisk]
		}
	}
	return boot
}

func firmware(uefi bool) string {
	if uefi {
		return "UEFI"
	}
	return "Legacy"
}

func (r *Redfish) getSystem(w http.ResponseWriter, req *http.Request) {
	doc, err := r.system(req.Context())
	if err != nil {
		chassisFailed(w, err)
		return
	}
	r.answer(w, req, doc)
}

// systemPatch is what may be changed. Enabled and target belong together; one may be left out where the other implies
// it.
type systemPatch struct {
	IndicatorLED            *string
	LocationIndicatorActive *bool
	Boot                    *struct {
		BootSourceOverrideEnabled *string
		BootSourceOverrideTarget  *string
		BootSourceOverrideMode    *string
	}
}

func (r *Redfish) patchSystem(w http.ResponseWriter, req *http.Request) {
	doc, err := r.system(req.Context())
	if err != nil {
		chassisFailed(w, err)
		return
	}
	in, ok := r.readPatch(w, req, doc)
	if !ok {
		return
	}
	if refused := r.cfg.Shape.BootRefused; in.Boot != nil && refused != "" {
		refuseAs(w, http.StatusBadRequest, refused,
			"The property Boot is a read-only property and cannot be assigned a value.")
		return
	}
	if err := r.applyPatch(req.Context(), in); err != nil {
		refuse(w, http.StatusBadRequest, "PropertyValueNotInList", err.Error())
		return
	}
	r.getSystem(w, req)
}

// readPatch reads a change of doc, or answers with its error.
func (r *Redfish) readPatch(w http.ResponseWriter, req *http.Request, doc object) (in systemPatch, ok bool) {
	switch want := req.Header.Get("If-Match"); {
	case want == "" && r.cfg.Shape.MatchNeeded:
		refuse(w, http.StatusPreconditionRequired, "PreconditionRequired",
			"A precondition header or annotation is required to change this resource.")
		return in, false
	case want == "" || want == etag(doc) || want == "*" && !r.cfg.Shape.MatchNeeded:
	default:
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed", "The ETag supplied did not match the current ETag.")
		return in, false
	}
	dec := json.NewDecoder(http.MaxBytesReader(w, req.Body, 1<<16))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		refuse(w, http.StatusBadRequest, "MalformedJSON", "The request body cannot be applied: "+err.Error())
		return in, false
	}
	return in, true
}

func (r *Redfish) applyPatch(ctx context.Context, in systemPatch) error {
	boot, change, err := r.wantedBoot(in)
	if err != nil || r.desk.lying() {
		return err
	}
	if in.LocationIndicatorActive != nil {
		r.led.set(*in.LocationIndicatorActive)
	}
	if in.IndicatorLED != nil {
		r.led.set(*in.IndicatorLED == "Lit" || *in.IndicatorLED == "Blinking")
	}
	if change && r.cfg.Shape.Continuous {
		r.pending.keepAlways(boot)
	}
	if change {
		return r.cfg.Chassis.SetBootOnce(ctx, boot)
	}
	return nil
}

func (r *Redfish) wantedBoot(in systemPatch) (boot Boot, change bool, err error) {
	b := in.Boot
	if b == nil {
		return BootNone, false, nil
	}
	shape := r.cfg.Shape
	switch mode := b.BootSourceOverrideMode; {
	case mode != nil && shape.ModeRefused:
		return BootNone, false,
			fmt.Errorf("the property BootSourceOverrideMode is a read-only property and cannot be assigned a value")
	case mode == nil && shape.ModeForgotten:
		r.pending.orderMode("Legacy")
	case mode != nil:
		r.pending.orderMode(*mode)
	}
	if mode := b.BootSourceOverrideMode; mode != nil && *mode != firmware(r.cfg.Chassis.About().UEFI) {
		return BootNone, false, fmt.Errorf("the firmware does not boot in mode %q", *mode)
	}
	enabled := "Once"
	if b.BootSourceOverrideEnabled != nil {
		enabled = *b.BootSourceOverrideEnabled
	}
	switch {
	case enabled == "Disabled" && shape.TargetNeeded &&
		(b.BootSourceOverrideTarget == nil || *b.BootSourceOverrideTarget == "None"):
		return BootNone, false, fmt.Errorf("BootSourceOverrideTarget must be set before BootSourceOverrideEnabled")
	case enabled == "Disabled" && !shape.Continuous:
		return BootNone, true, nil
	case enabled != "Once" && !shape.Continuous:
		return BootNone, false, fmt.Errorf("BootSourceOverrideEnabled %q is not supported", enabled)
	case b.BootSourceOverrideTarget == nil || !slices.Contains(r.bootTargets(), *b.BootSourceOverrideTarget):
		return BootNone, false, fmt.Errorf("the value of BootSourceOverrideTarget is not in the list of acceptable values")
	}
	for boot, word := range bootWords {
		if word == *b.BootSourceOverrideTarget {
			return boot, true, nil
		}
	}
	return BootNone, false, fmt.Errorf("unknown BootSourceOverrideTarget")
}

func (r *Redfish) postReset(w http.ResponseWriter, req *http.Request) {
	var in struct{ ResetType string }
	if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, 1<<16)).Decode(&in); err != nil {
		refuse(w, http.StatusBadRequest, "MalformedJSON", "The request body was malformed JSON.")
		return
	}
	switches, ok := resets[in.ResetType]
	if !ok {
		refuse(w, http.StatusBadRequest, "ActionParameterNotSupported", "The value of ResetType is not supported.")
		return
	}
	r.desk.reset()
	if r.desk.lying() {
		switches = nil
	}
	if slices.Contains(switches, PowerOn) {
		if r.cfg.Shape.Continuous && r.pending.everyBoot() != BootNone {
			r.pending.pend(r.pending.everyBoot())
		}
		if boot, set := r.pending.take(); set {
			if err := r.cfg.Chassis.SetBootOnce(req.Context(), boot); err != nil {
				chassisFailed(w, err)
				return
			}
		}
	}
	for _, s := range switches {
		if err := r.cfg.Chassis.SetPower(req.Context(), s); err != nil {
			chassisFailed(w, err)
			return
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

func (d *desk) lying() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.faults.Liar
}
