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
var bootWords = map[Boot]string{BootNone: "None", BootPXE: "Pxe", BootHTTP: "UefiHttp", BootDisk: "Hdd", BootMedia: "Cd"}

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
	about := r.cfg.Chassis.About()
	boot := object{
		"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": bootWords[once],
		"BootSourceOverrideMode": firmware(about.UEFI), "UefiTargetBootSourceOverride": nil,
		"BootSourceOverrideTarget@Redfish.AllowableValues":  r.bootTargets(),
		"BootSourceOverrideEnabled@Redfish.AllowableValues": []string{"Disabled", "Once"},
	}
	if once != BootNone {
		boot["BootSourceOverrideEnabled"] = "Once"
	}
	return entity(systemPath, "ComputerSystem.v1_20_0.ComputerSystem", "1", object{
		"Name": about.Name, "SystemType": "Physical", "Manufacturer": "Ingot", "Model": "Laboratory machine",
		"UUID": about.UUID, "SerialNumber": about.Serial, "PowerState": powerWords[power], "Status": healthy(),
		"IndicatorLED": r.led.get(), "LocationIndicatorActive": r.led.get() == "Lit", "Boot": boot,
		"EthernetInterfaces": link(systemPath + "/EthernetInterfaces"),
		"Links":              object{"ManagedBy": []object{link(managerPath)}, "Chassis": []object{link(chassisPath)}},
		"Actions": object{"#ComputerSystem.Reset": object{
			"target": resetPath, "ResetType@Redfish.AllowableValues": resetTypes(),
		}},
	}), nil
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

// systemPatch is what may be changed. Enabled and target belong together; one may be left out where the other says it.
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
	if want := req.Header.Get("If-Match"); want != "" && want != "*" && want != etag(doc) {
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed", "The ETag supplied did not match the current ETag.")
		return
	}
	var in systemPatch
	dec := json.NewDecoder(http.MaxBytesReader(w, req.Body, 1<<16))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		refuse(w, http.StatusBadRequest, "MalformedJSON", "The request body cannot be applied: "+err.Error())
		return
	}
	if err := r.applyPatch(req.Context(), in); err != nil {
		refuse(w, http.StatusBadRequest, "PropertyValueNotInList", err.Error())
		return
	}
	r.getSystem(w, req)
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
	if mode := b.BootSourceOverrideMode; mode != nil && *mode != firmware(r.cfg.Chassis.About().UEFI) {
		return BootNone, false, fmt.Errorf("the firmware does not boot in mode %q", *mode)
	}
	enabled := "Once"
	if b.BootSourceOverrideEnabled != nil {
		enabled = *b.BootSourceOverrideEnabled
	}
	switch {
	case enabled == "Disabled":
		return BootNone, true, nil
	case enabled != "Once":
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
