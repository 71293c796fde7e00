package redfish

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/stmcginnis/gofish/redfish"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
)

type bootOverride struct {
	Enabled lenient[redfish.BootSourceOverrideEnabled]       `json:"BootSourceOverrideEnabled"`
	Target  *lenient[redfish.BootSourceOverrideTarget]       `json:"BootSourceOverrideTarget"`
	Mode    lenient[redfish.BootSourceOverrideMode]          `json:"BootSourceOverrideMode"`
	Allowed lenient[words[redfish.BootSourceOverrideTarget]] `json:"BootSourceOverrideTarget@Redfish.AllowableValues"`
	Modes   lenient[words[redfish.BootSourceOverrideMode]]   `json:"BootSourceOverrideMode@Redfish.AllowableValues"`
}

var bootTargets = map[provider.BootDevice]redfish.BootSourceOverrideTarget{
	provider.BootPXE: redfish.PxeBootSourceOverrideTarget, provider.BootHTTP: redfish.UefiHTTPBootSourceOverrideTarget,
	provider.BootDisk: redfish.HddBootSourceOverrideTarget, provider.BootMedia: redfish.CdBootSourceOverrideTarget,
}

// choice is what the override means. One that is continuous stays: it is a foreign choice for every boot.
func (o bootOverride) choice() provider.BootChoice {
	if o.Target == nil || o.disabled() || o.Enabled.V == "" {
		return provider.BootChoice{}
	}
	for device, word := range bootTargets {
		if same(o.Target.V, word) {
			return provider.BootChoice{Device: device, Stays: same(o.Enabled.V, redfish.ContinuousBootSourceOverrideEnabled)}
		}
	}
	return provider.BootChoice{}
}

func (o bootOverride) disabled() bool {
	return same(o.Enabled.V, redfish.DisabledBootSourceOverrideEnabled)
}

// bootPlace is an object that holds the override: the system, or its settings object, from which a service takes it at
// the next reset (DSP0266, "Settings resource").
type bootPlace struct {
	path    path
	etag    string
	boot    bootOverride
	pending bool
}

// offers reports whether the object has an override at all. Blades of a Cray EX have none.
func (p bootPlace) offers() bool {
	return p.boot.Target != nil || p.boot.Enabled.Said || len(p.boot.Allowed.V) > 0
}

// bootPlaces are the objects that have BootSourceOverrideTarget, the one to write to first. A settings object may be
// there for other things (iDRAC9, XCC), or be the only place that may be written (iDRAC10, AMI).
func (c *Client) bootPlaces() ([]bootPlace, error) {
	s, etag, err := c.readSystem()
	if err != nil {
		return nil, err
	}
	current := bootPlace{path: c.system, etag: etag, boot: s.Boot.V}
	settings, found, err := c.settingsPlace(s.Settings.V.SettingsObject)
	switch {
	case err != nil:
		return nil, err
	case found && current.boot.Target != nil:
		return []bootPlace{settings, current}, nil
	case found:
		return []bootPlace{settings}, nil
	}
	return []bootPlace{current}, nil
}

// settingsPlace reads the settings object; a link to nothing is none.
func (c *Client) settingsPlace(p path) (place bootPlace, found bool, err error) {
	if p == "" {
		return bootPlace{}, false, nil
	}
	b, etag, err := c.get(p)
	if err = classify(c.rt.ctx, err); statusOf(err) != 0 {
		return bootPlace{}, false, nil
	}
	if err != nil {
		return bootPlace{}, false, err
	}
	var doc struct {
		Etag lenient[string] `json:"@odata.etag"`
		Boot lenient[bootOverride]
	}
	if json.Unmarshal(b, &doc) != nil || doc.Boot.V.Target == nil {
		return bootPlace{}, false, nil
	}
	if etag == "" {
		etag = doc.Etag.V
	}
	return bootPlace{path: p, etag: etag, boot: doc.Boot.V, pending: true}, true, nil
}

// nextBoot is the device of the next boot: a pending setting comes into effect with it.
func nextBoot(places []bootPlace) provider.BootChoice {
	var first provider.BootChoice
	for _, p := range places {
		c := p.boot.choice()
		switch {
		case c.Device == provider.BootDefault:
		case first.Device == provider.BootDefault:
			first = c
			if p.pending {
				first.Proof = provider.BootPending
			}
		case first.Device == c.Device && first.Stays == c.Stays:
			first.Proof = provider.BootRead // it is in effect already
		}
	}
	if first.Proof == "" {
		first.Proof = provider.BootRead
	}
	return first
}

// BootOnce is the device of the next boot.
func (c *Client) BootOnce(ctx context.Context) (choice provider.BootChoice, err error) {
	err = c.call(ctx, func(context.Context) error {
		places, err := c.bootPlaces()
		choice = nextBoot(places)
		return err
	})
	return choice, err
}

// SetBootOnce sets the device of the next boot; BootDefault removes an earlier choice. It reports whether the service
// has only accepted the order, to carry it out later (202, DSP0266, "Asynchronous operations").
func (c *Client) SetBootOnce(ctx context.Context, d provider.BootDevice) (ordered bool, err error) {
	err = c.call(ctx, func(context.Context) error {
		places, err := c.bootPlaces()
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(places, bootPlace.offers) {
			return unsupported("the BMC offers no boot override: the boot device is chosen elsewhere")
		}
		if d == provider.BootDefault {
			return c.clearBoot(places)
		}
		orders, err := bootOrders(d, places, c.cfg.BIOS)
		if err != nil {
			return err
		}
		ordered, err = c.order(places, orders)
		return err
	})
	return ordered, err
}

// clearBoot disables the override wherever one is enabled.
func (c *Client) clearBoot(places []bootPlace) error {
	for _, p := range places {
		if p.boot.choice().Device == provider.BootDefault && p.boot.disabled() {
			continue
		}
		_, err := c.orderAt(p, clearings(p.boot, bootMode(places, c.cfg.BIOS)))
		// A system that has a settings object may be read-only; what it still has is read back.
		readOnly := len(places) > 1 && !p.pending && statusOf(classify(c.rt.ctx, err)) != 0
		if err != nil && !readOnly {
			return err
		}
	}
	return nil
}

// order writes to the first place, and where that is refused to the next one: some services show the property in an
// object in which they don't let it be changed.
func (c *Client) order(places []bootPlace, orders []map[string]any) (ordered bool, err error) {
	var refused error
	for _, p := range places {
		status, err := c.orderAt(p, orders)
		if err == nil {
			return p.pending && status == http.StatusAccepted, nil
		}
		if err = classify(c.rt.ctx, err); statusOf(err)/100 != 4 {
			return false, err
		}
		if refused == nil {
			refused = err
		}
	}
	return false, refused
}

// orderAt sends the first form of an order, and the next one where the service doesn't take that form (400).
func (c *Client) orderAt(p bootPlace, orders []map[string]any) (status int, err error) {
	for _, boot := range orders {
		status, err = c.patchStatus(p.path, p.etag, map[string]any{"Boot": boot})
		if err == nil || statusOf(classify(c.rt.ctx, err)) != http.StatusBadRequest {
			return status, err
		}
	}
	return status, err
}

const (
	wordEnabled = "BootSourceOverrideEnabled"
	wordTarget  = "BootSourceOverrideTarget"
	wordMode    = "BootSourceOverrideMode"
)

// clearings are the forms in which services take an override back. iLO wants a target that is one, which is ignored
// once the override is disabled. The target of now is named there: a service that does not ignore it changes nothing.
// Others want the mode with every change.
func clearings(now bootOverride, mode redfish.BootSourceOverrideMode) []map[string]any {
	target := redfish.PxeBootSourceOverrideTarget
	if now.Target != nil && now.Target.V != "" && !same(now.Target.V, redfish.NoneBootSourceOverrideTarget) {
		target = now.Target.V
	}
	forms := []map[string]any{
		{wordEnabled: redfish.DisabledBootSourceOverrideEnabled},
		{wordEnabled: redfish.DisabledBootSourceOverrideEnabled, wordTarget: redfish.NoneBootSourceOverrideTarget},
		{wordEnabled: redfish.DisabledBootSourceOverrideEnabled, wordTarget: target},
	}
	if mode == "" {
		return forms
	}
	for _, plain := range slices.Clone(forms) {
		with := maps.Clone(plain)
		with[wordMode] = mode
		forms = append(forms, with)
	}
	return forms
}

// bootOrders are the forms of the order. The first has the mode, without which some boards fall back to Legacy; the
// second has none, because others refuse to have it written.
func bootOrders(d provider.BootDevice, places []bootPlace, bios bool) ([]map[string]any, error) {
	target, known := bootTargets[d]
	if !known {
		return nil, &effect.Refusal{
			Kind:   effect.ErrInvalid,
			Reason: effect.ReasonInvalid,
			Detail: fmt.Sprintf("boot device %q", d),
		}
	}
	target, takes := spelled(places, target)
	if !takes {
		return nil, unsupported("the BMC does not boot from %q", target)
	}
	plain := map[string]any{wordEnabled: redfish.OnceBootSourceOverrideEnabled, wordTarget: target}
	mode := bootMode(places, bios)
	needed := d == provider.BootHTTP && same(mode, redfish.LegacyBootSourceOverrideMode)
	if needed {
		mode = redfish.UEFIBootSourceOverrideMode // nothing that a legacy BIOS could do
	}
	if mode == "" {
		return []map[string]any{plain}, nil
	}
	full := map[string]any{wordEnabled: redfish.OnceBootSourceOverrideEnabled, wordTarget: target, wordMode: mode}
	if needed {
		return []map[string]any{full}, nil
	}
	return []map[string]any{full, plain}, nil
}

// spelled reports whether a list of one of the places has the target, or none has a list, and returns it as it stands
// there. The list of a settings object may be older than the system's (BlueField).
func spelled(places []bootPlace, t redfish.BootSourceOverrideTarget) (redfish.BootSourceOverrideTarget, bool) {
	listed := false
	for _, p := range places {
		listed = listed || len(p.boot.Allowed.V) > 0
		if as, ok := p.boot.Allowed.V.find(t); ok {
			return as, true
		}
	}
	return t, !listed
}

// bootMode is the mode in which the machine is to boot; empty where the service knows none. The override may be that of
// an earlier order, and is no evidence of the firmware: a UEFI machine that is sent to Legacy boots nothing. So it is
// UEFI, unless the machine is known to have a BIOS, or the service lists one mode alone.
func bootMode(places []bootPlace, bios bool) redfish.BootSourceOverrideMode {
	known := false
	for _, p := range places {
		known = known || p.boot.Mode.V != "" || len(p.boot.Modes.V) > 0
		if len(p.boot.Modes.V) == 1 {
			return p.boot.Modes.V[0]
		}
	}
	switch {
	case !known:
		return ""
	case bios:
		return redfish.LegacyBootSourceOverrideMode
	}
	return redfish.UEFIBootSourceOverrideMode
}
