package machine_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/domain/machinefilter"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/label"
)

func TestAPageEndsWhereAnAnswerDoes(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	labels := map[string]string{}
	for i := range 60 {
		labels[fmt.Sprintf("%s-%02d", strings.Repeat("k", 50), i)] = strings.Repeat("v", 60)
	}
	const machines = 620 // of some 7 KiB each: more than one statement reads, and more than one answer holds
	for i := range machines {
		r.Register(&pb.Machine{MachineId: fmt.Sprintf("m-%04d", i), Labels: labels})
	}
	var seen []string
	token, pages := "", 0
	for {
		page, err := r.Machines.ListMachines(ctx, &pb.ListMachinesRequest{PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		if n := proto.Size(page); n > 4<<20 {
			t.Errorf("an answer has %d bytes", n)
		}
		if page.GetTotalSize() != machines {
			t.Errorf("page %d says that there are %d machines", pages, page.GetTotalSize())
		}
		for _, m := range page.GetMachines() {
			seen = append(seen, m.GetMachineId())
		}
		pages++
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if pages != 2 || len(seen) != machines || seen[0] != "m-0000" || seen[machines-1] != "m-0619" {
		t.Errorf("%d pages with %d machines", pages, len(seen))
	}
	changes, err := r.Machines.ListMachines(ctx,
		&pb.ListMachinesRequest{UpdatedSince: timestamppb.New(time.Now().Add(-time.Hour))})
	if err != nil || proto.Size(changes) > 4<<20 || !changes.GetMore() {
		t.Errorf("a reconcile has %d bytes, more %t, %v", proto.Size(changes), changes.GetMore(), err)
	}
}

func TestListsWithoutAPageSizeAreWhole(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	const n = 130 // which is more than a page had
	for i := range n {
		r.Register(&pb.Machine{MachineId: fmt.Sprintf("m-%03d", i), Labels: map[string]string{"odd": fmt.Sprint(i % 2)}})
		r.Maintenance(fmt.Sprintf("m-%03d", i))
		step := []*pb.Step{{Name: "a", Kind: &pb.Step_Reboot{Reboot: &pb.Reboot{}}}}
		if _, err := r.Plans.CreatePlan(ctx,
			&pb.CreatePlanRequest{Plan: &pb.Plan{PlanId: fmt.Sprintf("p-%03d", i), Steps: step}}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := r.Machines.ListMachines(ctx, &pb.ListMachinesRequest{})
	if err != nil || len(all.GetMachines()) != n || all.GetTotalSize() != n || all.GetNextPageToken() != "" {
		t.Errorf("%d machines of %d, %v", len(all.GetMachines()), all.GetTotalSize(), err)
	}
	runs, err := r.Runs.ListRuns(ctx, &pb.ListRunsRequest{})
	if err != nil || len(runs.GetRuns()) != n || runs.GetRuns()[0].GetMachineId() != "m-129" {
		t.Errorf("%d runs, the first of %s, %v", len(runs.GetRuns()), runs.GetRuns()[0].GetMachineId(), err)
	}
	plans, err := r.Plans.ListPlans(ctx, &pb.ListPlansRequest{})
	if err != nil || int(plans.GetTotalSize()) != len(plans.GetPlans()) || len(plans.GetPlans()) < n {
		t.Errorf("%d plans of %d, %v", len(plans.GetPlans()), plans.GetTotalSize(), err)
	}
	half, err := r.Machines.ListMachines(ctx, &pb.ListMachinesRequest{Filter: "labels.odd=1", PageSize: 10})
	if err != nil || len(half.GetMachines()) != 10 || half.GetTotalSize() != n/2 || half.GetNextPageToken() == "" {
		t.Errorf("%d machines of %d, %v", len(half.GetMachines()), half.GetTotalSize(), err)
	}
	token, count := "", 0
	for {
		p, err := r.Plans.ListPlans(ctx, &pb.ListPlansRequest{PageSize: 7, PageToken: token})
		if err != nil || p.GetTotalSize() != plans.GetTotalSize() {
			t.Fatalf("%d plans in all, %v", p.GetTotalSize(), err)
		}
		for _, one := range p.GetPlans() {
			if one.GetPlanId() != plans.GetPlans()[count].GetPlanId() {
				t.Fatalf("plan %d is %s", count, one.GetPlanId())
			}
			count++
		}
		if token = p.GetNextPageToken(); token == "" {
			break
		}
	}
	if count != len(plans.GetPlans()) {
		t.Errorf("%d plans by pages of %d", count, len(plans.GetPlans()))
	}
}

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

// TestReadMask: a read returns the fields that the mask names, with the id, the version and the mark of a tombstone.
// What the caller did wrong, or may not, is refused as without a mask.
func TestReadMask(t *testing.T) {
	t.Parallel()
	r := publictest.NewRig(t)
	ctx := t.Context()
	stored := r.Register(&pb.Machine{MachineId: "m-1", Labels: map[string]string{"env": "prod"},
		Spec: &pb.MachineSpec{Rack: "r1", Site: "dallas"}})
	for name, c := range map[string]struct {
		paths []string
		want  *pb.Machine
	}{
		"nothing": {nil, stored},
		"one field": {[]string{"spec.rack"},
			&pb.Machine{MachineId: "m-1", Version: 1, Spec: &pb.MachineSpec{Rack: "r1"}}},
		"labels":        {[]string{"labels"}, &pb.Machine{MachineId: "m-1", Version: 1, Labels: stored.GetLabels()}},
		"a field twice": {[]string{"spec.rack", "spec"}, &pb.Machine{MachineId: "m-1", Version: 1, Spec: stored.GetSpec()}},
		"the id":        {[]string{"machine_id"}, &pb.Machine{MachineId: "m-1", Version: 1}},
		"the state": {[]string{"status.effective_state"}, &pb.Machine{MachineId: "m-1",
			Version: stored.GetVersion(), Status: &pb.MachineStatus{EffectiveState: stored.GetStatus().GetEffectiveState()}}},
	} {
		mask := &fieldmaskpb.FieldMask{Paths: c.paths}
		m, err := r.Machines.GetMachine(ctx, &pb.GetMachineRequest{MachineId: "m-1", ReadMask: mask})
		if err != nil || !proto.Equal(m, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, m, err, c.want)
		}
		list, err := r.Machines.ListMachines(ctx, &pb.ListMachinesRequest{ReadMask: mask})
		if err != nil || len(list.GetMachines()) != 1 || !proto.Equal(list.GetMachines()[0], c.want) ||
			list.GetNextCursor() == "" {
			t.Errorf("%s: %v, %v, want %v", name, list, err, c.want)
		}
	}
	for _, path := range []string{"colour", "spec.colour", "labels.env", "machine_id.x", "Spec", "",
		"status.conditions.type"} {
		mask := &fieldmaskpb.FieldMask{Paths: []string{"machine_id", path}}
		_, err := r.Machines.GetMachine(ctx, &pb.GetMachineRequest{MachineId: "m-1", ReadMask: mask})
		publictest.Wants(t, err, failure.KindInvalid, "INVALID_FIELD", "read_mask")
		_, err = r.Machines.ListMachines(ctx, &pb.ListMachinesRequest{ReadMask: mask})
		publictest.Wants(t, err, failure.KindInvalid, "INVALID_FIELD", "read_mask")
	}
	many := &fieldmaskpb.FieldMask{Paths: slices.Repeat([]string{"spec"}, 257)}
	_, err := r.Machines.GetMachine(ctx, &pb.GetMachineRequest{MachineId: "m-1", ReadMask: many})
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_FIELD", "read_mask")
	mask := &fieldmaskpb.FieldMask{Paths: []string{"spec"}}
	_, err = r.Machines.GetMachine(ctx, &pb.GetMachineRequest{MachineId: "m-2", ReadMask: mask})
	publictest.Wants(t, err, failure.KindNotFound, "MACHINE_NOT_FOUND", "machine_id")
	_, err = r.Machines.ListMachines(ctx, &pb.ListMachinesRequest{Filter: "x", ReadMask: mask})
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_FILTER", "filter")

	head, err := r.Machines.ListMachines(ctx, &pb.ListMachinesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Machines.DeleteMachine(ctx, &pb.DeleteMachineRequest{MachineId: "m-1"}); err != nil {
		t.Fatal(err)
	}
	changed, err := r.Machines.ListMachines(ctx, &pb.ListMachinesRequest{Cursor: head.GetNextCursor(), ReadMask: mask})
	if err != nil || len(changed.GetMachines()) != 1 || changed.GetMachines()[0].GetDeletedAt() == nil {
		t.Errorf("a tombstone under a mask: %v, %v", changed, err)
	}
}
