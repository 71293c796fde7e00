package netbox

import (
	"reflect"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func device(name string) Device {
	d := Device{ID: 7, Name: &name, Site: &Ref{Slug: "oslo_1"}, Rack: &Ref{Name: "R 42"}, Fields: map[string]any{}}
	d.Status.Value = "planned"
	return d
}

func kinds(changes []Change) (out []Kind) {
	for _, c := range changes {
		out = append(out, c.Kind)
	}
	return out
}

// bound returns the machine of a device, with a foreign change.
func bound(d Device, change func(*pb.Machine)) *pb.Machine {
	m := Ingest(d, nil, nil, nil)[0].Machine
	if change != nil {
		change(m)
	}
	return m
}

func TestIngest(t *testing.T) {
	t.Parallel()
	d := device("R42 01")
	half := 7.5
	moved := device("R42 01")
	moved.Position = &half
	renamed, odd, offline := device("r42-02"), device("Größe"), device("r42-01")
	offline.Status.Value = "offline"
	serial := device("r42-01")
	serial.Serial = "OSL1"
	for name, c := range map[string]struct {
		d            Device
		bound, named *pb.Machine
		want         []Kind
	}{
		"new":                  {d: d, want: []Kind{Create}},
		"not planned":          {d: offline},
		"no name of a machine": {d: odd, want: []Kind{Conflict}},
		"no name":              {d: Device{ID: 1, Status: d.Status}, want: []Kind{Conflict}},
		"as it was":            {d: d, bound: bound(d, nil)},
		"moved":                {d: moved, bound: bound(d, nil), want: []Kind{Update}},
		"changed in Ingot": {d: d, bound: bound(d, func(m *pb.Machine) { m.Spec.Rack = "x" }),
			want: []Kind{Conflict}},
		"moved, and changed in Ingot": {d: moved, bound: bound(d, func(m *pb.Machine) { m.Spec.Rack = "x" }),
			want: []Kind{Conflict, Conflict}},
		"changed in Ingot to the same": {d: moved, bound: bound(d, func(m *pb.Machine) { m.Labels["position"] = "7.5" }),
			want: []Kind{Update}},
		"other fields changed in Ingot": {d: moved, bound: bound(d, func(m *pb.Machine) { m.Spec.Location = "x" }),
			want: []Kind{Update}},
		"renamed":                   {d: renamed, bound: bound(d, nil), want: []Kind{Conflict}},
		"there before":              {d: d, named: &pb.Machine{MachineId: "r42-01"}, want: []Kind{Update}},
		"there before, on its site": {d: d, named: &pb.Machine{Spec: &pb.MachineSpec{Site: "default"}}, want: []Kind{Update}},
		"there before, elsewhere":   {d: d, named: &pb.Machine{Spec: &pb.MachineSpec{Site: "rome"}}, want: []Kind{Conflict}},
		"there before, with another serial number": {d: serial, named: &pb.Machine{Spec: &pb.MachineSpec{Serial: "BER1"}},
			want: []Kind{Conflict}},
		"there before, with its serial number": {d: serial, named: &pb.Machine{Spec: &pb.MachineSpec{Serial: "osl1"}},
			want: []Kind{Update}},
		"there before, in its rack by a label": {d: d, named: &pb.Machine{Labels: map[string]string{"rack": "R 42"}},
			want: []Kind{Update}},
		"there before, in another rack by a label": {d: d, named: &pb.Machine{Labels: map[string]string{"rack": "R 1"}},
			want: []Kind{Conflict}},
		"of another device": {d: d, named: &pb.Machine{Spec: &pb.MachineSpec{ExternalId: "netbox-device-8"}},
			want: []Kind{Conflict}},
	} {
		if got := kinds(Ingest(c.d, nil, c.bound, c.named)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	mac := "52:54:00:AA:00:01"
	nics := []Interface{{Name: "eno1", MAC: &mac}}
	seen := bound(d, func(m *pb.Machine) { m.Status = &pb.MachineStatus{AgentId: "agent-1"} })
	if got := Ingest(d, nics, seen, nil); len(got) != 0 {
		t.Errorf("what was reported to NetBox comes back: %v", got)
	}
	if got := Ingest(d, nics, bound(d, nil), nil); len(got) != 1 || got[0].Mask[0] != "spec.mac_addresses" {
		t.Errorf("addresses that were planned later: %v", got)
	}
	m := bound(moved, nil)
	if m.GetMachineId() != "r42-01" || m.GetSpec().GetSite() != "oslo-1" || m.GetSpec().GetRack() != "R 42" ||
		m.GetLabels()["position"] != "7.5" || deviceOf(m) != 7 {
		t.Errorf("the machine is %v", m)
	}
}

func TestReportOfInterfaces(t *testing.T) {
	t.Parallel()
	mac, other := "52:54:00:AA:00:01", "52:54:00:AA:00:09"
	for name, c := range map[string]struct {
		nics []Interface
		want []Kind
	}{
		"missing":                  {want: []Kind{AddNIC}},
		"there":                    {nics: []Interface{{Name: "eth0", MAC: &mac}}},
		"there under another name": {nics: []Interface{{Name: "eno1", MAC: &mac}, {Name: "eth0", MAC: &other}}},
		"planned without address":  {nics: []Interface{{Name: "eth0"}}, want: []Kind{SetMAC}},
		"another address":          {nics: []Interface{{Name: "eth0", MAC: &other}}, want: []Kind{Conflict}},
	} {
		o := Observed{Machine: &pb.Machine{}, Seen: true, NICs: []NIC{{Name: "eth0", MAC: "52:54:00:aa:00:01"}}}
		d := device("x")
		d.Fields = map[string]any{"ingot_state": "EFFECTIVE_STATE_UNSPECIFIED"}
		if got := kinds(Report(d, c.nics, o)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
