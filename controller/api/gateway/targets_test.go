package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func TestTargetOf(t *testing.T) {
	for name, c := range map[string]struct {
		machine *baremetalv1.Machine
		target  string
		labels  map[string]string
	}{
		"nothing but an id": {
			&baremetalv1.Machine{MachineId: "m-1"}, "m-1:9100", map[string]string{"machine_id": "m-1"},
		},
		"all labels": {
			&baremetalv1.Machine{
				MachineId: "m-1", Labels: map[string]string{"env": "prod", "app.kubernetes.io/name": "x"},
				Spec: &baremetalv1.MachineSpec{SshEndpoint: "10.0.0.7:22", Site: "s", Rack: "r", Group: "g",
					InstallAddress: "10.0.0.8/24"},
			}, "10.0.0.7:9100", map[string]string{
				"machine_id": "m-1", "site": "s", "rack": "r", "group": "g", "label_env": "prod",
				"label_app_kubernetes_io_name": "x",
			},
		},
		"keys that become one name": {
			&baremetalv1.Machine{
				MachineId: "m-1", Labels: map[string]string{"a.b": "first", "a_b": "second"},
				Status: &baremetalv1.MachineStatus{ProbedAddress: "fd00::7"},
			}, "[fd00::7]:9100", map[string]string{"machine_id": "m-1", "label_a_b": "first"},
		},
		"the installer's address": {
			&baremetalv1.Machine{MachineId: "m-1", Spec: &baremetalv1.MachineSpec{InstallAddress: "10.0.0.8/24"}},
			"10.0.0.8:9100", map[string]string{"machine_id": "m-1"},
		},
	} {
		got := targetOf(c.machine, "9100")
		if !reflect.DeepEqual(got, targetGroup{[]string{c.target}, c.labels}) {
			t.Errorf("%s: %+v, want %s %v", name, got, c.target, c.labels)
		}
	}
}

// pages answers a list in two pages.
type pages struct {
	baremetalv1.MachineServiceClient
	asked []string
}

func (p *pages) ListMachines(
	_ context.Context, r *baremetalv1.ListMachinesRequest, _ ...grpc.CallOption,
) (*baremetalv1.ListMachinesResponse, error) {
	p.asked = append(p.asked, fmt.Sprintf("%s from %q", r.GetFilter(), r.GetPageToken()))
	if r.GetPageToken() == "" {
		return &baremetalv1.ListMachinesResponse{
			Machines: []*baremetalv1.Machine{{MachineId: "m-1"}, {MachineId: "m-2"}}, NextPageToken: "m-2",
		}, nil
	}
	return &baremetalv1.ListMachinesResponse{Machines: []*baremetalv1.Machine{{MachineId: "m-3"}}}, nil
}

// endless answers each page with another one to come.
type endless struct {
	baremetalv1.MachineServiceClient
}

func (endless) ListMachines(
	_ context.Context, r *baremetalv1.ListMachinesRequest, _ ...grpc.CallOption,
) (*baremetalv1.ListMachinesResponse, error) {
	page := make([]*baremetalv1.Machine, r.GetPageSize())
	for i := range page {
		page[i] = &baremetalv1.Machine{MachineId: fmt.Sprintf("m-%d", i)}
	}
	return &baremetalv1.ListMachinesResponse{Machines: page, NextPageToken: "more"}, nil
}

func TestTargetsAreBounded(t *testing.T) {
	raw, err := (&Gateway{machines: endless{}}).allTargets(t.Context(), "", "9100")
	if raw != nil || status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "narrow the filter") {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
}

func TestTargetsAreOfAllPages(t *testing.T) {
	p := &pages{}
	raw, err := (&Gateway{machines: p}).allTargets(t.Context(), "rack=r1", "9100")
	var all []targetGroup
	if err != nil || json.Unmarshal(raw, &all) != nil || len(all) != 3 || all[2].Targets[0] != "m-3:9100" {
		t.Errorf("%s, %v", raw, err)
	}
	if want := []string{`rack=r1 from ""`, `rack=r1 from "m-2"`}; !reflect.DeepEqual(p.asked, want) {
		t.Errorf("asked for %v", p.asked)
	}
}
