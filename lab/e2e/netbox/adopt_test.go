//go:build netbox

package netbox

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/label"
	"github.com/ingot-metal/ingot/lab/harness"
)

// fleetSize is how many machines are adopted at once.
const fleetSize = 50

// adopted is a fleet that was there before NetBox knew of it: each has a budget's label, a claim and a team.
type adopted struct {
	*world
	p       plan
	was     map[string]*baremetalv1.Machine
	devices map[string]int64
}

func newAdopted(t *testing.T, b box) *adopted {
	t.Helper()
	a := &adopted{world: newWorld(t, b), was: map[string]*baremetalv1.Machine{}, devices: map[string]int64{}}
	for _, args := range [][]string{{"budget", "set", "power", "--domain", "label:power-domain", "--at-once", "2"},
		{"budget", "set", "racks", "--domain", "label:rack", "--at-once", "1"}} {
		if code, out := a.c.Ingot(args...); code != 0 {
			t.Fatal(out)
		}
	}
	a.p = a.furnish()
	a.run(0, "--setup")
	for i := range fleetSize {
		id := fmt.Sprintf("fleet-%02d", i)
		labels := map[string]string{"power-domain": fmt.Sprint("pdu-", i%5), "capi.ingot.dev/claim": fmt.Sprint("uid-", i),
			"team": "payments"}
		spec := &baremetalv1.MachineSpec{Provider: "fake", Location: "cage 4", Rack: "R42"}
		if i%2 == 1 {
			spec.Rack, labels["rack"] = "", "R42" // the same rack, by the label alone
		}
		a.was[id] = a.c.Register(&baremetalv1.Machine{MachineId: id, Labels: labels, Spec: spec})
		a.devices[id] = a.device(a.p, strings.ToUpper(id), object{"rack": a.p.rack, "position": 1 + i%40, "face": "front"})
	}
	return a
}

// lost reports what a machine had before and has no more. What NetBox owns is there besides.
func (a *adopted) lost(after string) {
	a.t.Helper()
	for id, m := range a.was {
		is := a.c.Machine(id)
		labels := maps.Clone(is.GetLabels())
		for _, owned := range []string{"position", "role", "asset-tag", "device-type", "netbox-applied"} {
			delete(labels, owned)
		}
		spec := proto.CloneOf(is.GetSpec())
		spec.Site, spec.ExternalId = m.GetSpec().GetSite(), ""
		spec.Rack = label.RackOf(spec.GetRack(), labels)
		was := proto.CloneOf(m.GetSpec())
		was.Rack = label.RackOf(was.GetRack(), m.GetLabels()) // which the field and the label name
		if !maps.Equal(labels, m.GetLabels()) || !proto.Equal(spec, was) || is.GetDeletedAt() != nil ||
			is.GetStatus().GetPhase() != m.GetStatus().GetPhase() {
			a.t.Errorf("after %s %s is %v, was %v", after, id, is, m)
		}
	}
}

// TestAnAdoptedFleetLosesNothing has NetBox take over a fleet with labels, claims and budgets, mistypes every field
// that it owns, renames, replaces and deletes devices.
func TestAnAdoptedFleetLosesNothing(t *testing.T) {
	for name, b := range boxes(t) {
		if b.emulated == nil {
			continue // its objects are those of the other test
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b.t = t
			adopt(t, newAdopted(t, b))
		})
	}
}

func adopt(t *testing.T, a *adopted) {
	a.says(a.run(0, "--dry-run"), fmt.Sprintf("0 machines created, %d updated", fleetSize))
	a.lost("a dry run")
	a.says(a.run(0), fmt.Sprintf("0 machines created, %d updated", fleetSize), "0 conflicts")
	a.lost("the adoption")
	a.says(a.run(0), "0 machines created, 0 updated; 0 changes in NetBox; 0 conflicts")
	if m := a.c.Machine("fleet-07"); m.GetSpec().GetSite() != "oslo" || m.GetLabels()["role"] != "server" ||
		m.GetSpec().GetExternalId() != fmt.Sprintf("netbox-device-%d", a.devices["fleet-07"]) {
		t.Errorf("the machine was not taken over: %v", m)
	}
	a.mistyped()
	a.replaced()
}

// mistyped has an error in each field of a device, one after the other: it is a conflict, or goes over and comes back.
func (a *adopted) mistyped() {
	a.t.Helper()
	const id = "fleet-03"
	kept, r42 := a.devices[id], a.p.rack
	rack := a.post("/dcim/racks/", object{"name": "R24", "site": a.p.oslo})
	for _, c := range []struct {
		field       string
		wrong, good any
	}{
		{"name", "Größe", strings.ToUpper(id)},
		{"name", "fleet-04", strings.ToUpper(id)}, // the twin's
		{"serial", "TYPO-1", ""},
		{"asset_tag", strings.Repeat("ä", 50), nil},
		{"status", "decommissioning", "planned"},
		{"position", 41, 4},
		{"rack", rack, r42},
		{a.role, a.p.aSwitch, a.p.server}, // and so it leaves the query
		{"site", a.p.bergen, a.p.oslo},
	} {
		in := object{c.field: c.wrong}
		if c.field == "site" {
			in["rack"], in["position"], in["face"] = nil, nil, ""
		}
		a.patch(kept, in)
		cmd, out := a.command("--devices", "role=server")
		if err := cmd.Run(); err != nil && cmd.ProcessState.ExitCode() != 3 {
			a.t.Errorf("%s %v ends the run: %v\n%s", c.field, c.wrong, err, out)
		}
		m := a.c.Machine(id)
		was := a.was[id]
		if m.GetDeletedAt() != nil || m.GetStatus().GetPhase() != was.GetStatus().GetPhase() ||
			m.GetLabels()["team"] != "payments" || m.GetLabels()["capi.ingot.dev/claim"] != "uid-3" ||
			m.GetLabels()["power-domain"] != "pdu-3" || m.GetLabels()["rack"] != "R42" {
			a.t.Errorf("after %s %v the machine is %v\n%s", c.field, c.wrong, m, out)
		}
		in = object{c.field: c.good}
		if c.field == "site" {
			in["rack"], in["position"], in["face"] = r42, 4, "front"
		}
		a.patch(kept, in)
		a.run(0)
	}
	if spec := a.c.Machine(id).GetSpec(); spec.GetRack() != "R42" || spec.GetSite() != "oslo" {
		a.t.Errorf("a typing error that was put right stays: %v", spec)
	}
	a.lost("typing errors")
}

// replaced deletes a device, and another takes its name.
func (a *adopted) replaced() {
	a.t.Helper()
	a.call(http.MethodDelete, fmt.Sprintf("/dcim/devices/%d/", a.devices["fleet-10"]), nil)
	a.says(a.run(3), "conflict  fleet-10: NetBox has no device")
	again := a.device(a.p, "fleet-10", object{"rack": a.p.rack, "position": 11, "face": "front"})
	a.says(a.run(3), fmt.Sprintf("fleet-10 (device %d): machine fleet-10 is of %q already", again,
		fmt.Sprintf("netbox-device-%d", a.devices["fleet-10"])))
	a.lost("a replacement")
	for id, device := range a.devices {
		if id != "fleet-10" {
			a.call(http.MethodDelete, fmt.Sprintf("/dcim/devices/%d/", device), nil)
		}
	}
	a.says(a.run(3), "0 machines created, 0 updated")
	a.lost("the end of all devices")
	list := harness.Must(a.t, a.c.Machines().ListMachines, &baremetalv1.ListMachinesRequest{PageSize: 1000})
	if n := len(list.GetMachines()); n != fleetSize {
		a.t.Errorf("%d machines are left of %d", n, fleetSize)
	}
}
