package machine_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/domain/machinefilter"
	"github.com/ingot-metal/ingot/internal/label"
)

// TestARackIsOneThing: lists, selections, counts and orders read the rack as label.RackOf does, by whichever name a
// machine has it.
func TestARackIsOneThing(t *testing.T) {
	r := publictest.NewRig(t)
	var all []*pb.Machine
	for i, in := range []struct{ field, label string }{{"a", ""}, {"", "a"}, {"a", "a"}, {"a", "b"}, {"b", "a"}, {"", ""},
		{"", "b"}, {"ab", ""}} {
		m := publictest.NewMachine(i)
		m.Spec.Rack = in.field
		if in.label != "" {
			m.Labels = map[string]string{"rack": in.label}
		}
		r.Register(m)
		all = append(all, m)
	}
	rack := func(m *pb.Machine) string { return label.RackOf(m.GetSpec().GetRack(), m.GetLabels()) }
	list := func(ctx context.Context, q *pb.ListMachinesRequest) (ids []string) {
		t.Helper()
		page, err := r.Machines.ListMachines(ctx, q)
		if err != nil {
			t.Fatalf("%v: %v", q, err)
		}
		for _, m := range page.GetMachines() {
			ids = append(ids, m.GetMachineId())
		}
		return ids
	}
	for filter, some := range map[string]int{"rack=a": 4, "rack=b": 2, "rack!=a": 4, "rack=a*": 5, "rack in (a, b)": 6,
		"rack=a,rack!=b": 4, "rack=a,rack=a*": 4, "labels.rack=a": 3, "rack=b,labels.rack=a": 1} {
		var want []string
		for _, m := range all {
			if machinefilter.Parse(filter).Matches(m) {
				want = append(want, m.GetMachineId())
			}
		}
		if len(want) != some {
			t.Errorf("%s matches %d machines, want %d: %v", filter, len(want), some, want)
		}
		if got := list(t.Context(), &pb.ListMachinesRequest{Filter: filter}); !slices.Equal(got, want) {
			t.Errorf("a list by %s has %v, want %v", filter, got, want)
		}
		if got := list(publictest.Within(t.Context(), filter), &pb.ListMachinesRequest{}); !slices.Equal(got, want) {
			t.Errorf("the selection %s has %v, want %v", filter, got, want)
		}
		count, err := r.Machines.CountMachines(t.Context(), &pb.CountMachinesRequest{Filter: filter})
		if err != nil || int(count.GetTotal()) != some {
			t.Errorf("a count by %s: %v, %v", filter, count, err)
		}
	}
	counts := map[string]int{}
	for _, m := range all {
		counts[rack(m)]++
	}
	count, err := r.Machines.CountMachines(t.Context(), &pb.CountMachinesRequest{GroupBy: []string{"rack"}})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, g := range count.GetGroups() {
		got[g.GetValues()[0]] += int(g.GetCount())
	}
	if fmt.Sprint(got) != fmt.Sprint(counts) {
		t.Errorf("counted %v, want %v", got, counts)
	}
	slices.SortStableFunc(all, func(a, b *pb.Machine) int { return cmp.Compare(rack(a), rack(b)) })
	var order, pages []string
	for _, m := range all {
		order = append(order, m.GetMachineId())
	}
	publictest.Walk(t, func(token string) (string, error) {
		page, err := r.Machines.ListMachines(t.Context(), &pb.ListMachinesRequest{OrderBy: "rack", PageSize: 3,
			PageToken: token})
		for _, m := range page.GetMachines() {
			pages = append(pages, m.GetMachineId())
		}
		return page.GetNextPageToken(), err
	})
	if !slices.Equal(pages, order) {
		t.Errorf("in the order of racks %v, want %v", pages, order)
	}
}
