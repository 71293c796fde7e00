package machine_test

import (
	"bytes"
	"slices"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
)

// entries reads a whole history by small pages.
func entries(r *publictest.Rig, req *pb.GetMachineTimelineRequest) (all []*pb.TimelineEntry, states int) {
	r.T.Helper()
	req.PageSize = 3
	for {
		page, err := r.Machines.GetMachineTimeline(r.T.Context(), req)
		if err != nil || len(page.GetEntries()) > 3 {
			r.T.Fatalf("%d entries, %v", len(page.GetEntries()), err)
		}
		if page.GetState() != nil {
			states++
		}
		all = append(all, page.GetEntries()...)
		if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
			return all, states
		}
	}
}

func TestHistoryByPages(t *testing.T) {
	r := publictest.NewRig(t)
	r.Register(&pb.Machine{MachineId: "m-1"})
	r.Maintenance("m-1")
	up, states := entries(r, &pb.GetMachineTimelineRequest{MachineId: "m-1", OldestFirst: true})
	if len(up) < 7 || states != 1 {
		t.Fatalf("%d entries, %d states", len(up), states)
	}
	for i, e := range up[1:] {
		before := up[i]
		first := e.GetSeq() == before.GetSeq()+1 && e.GetChange() == 0 && bytes.Equal(e.GetPrevHash(), before.GetHash())
		next := e.GetSeq() == before.GetSeq() && e.GetChange() == before.GetChange()+1 &&
			bytes.Equal(e.GetHash(), before.GetHash())
		if first == next || e.GetSummary() == "" || e.GetActor() == "" {
			t.Errorf("after %v: %v", before, e)
		}
	}
	down, _ := entries(r, &pb.GetMachineTimelineRequest{MachineId: "m-1"})
	slices.Reverse(down)
	if len(down) != len(up) || down[0].GetSeq() != 1 || down[0].GetChange() != 0 ||
		!bytes.Equal(down[0].GetHash(), up[0].GetHash()) {
		t.Errorf("newest first gives %d entries, oldest first %d", len(down), len(up))
	}
	first := up[0].GetTs()
	then, err := r.Machines.GetMachineTimeline(t.Context(), &pb.GetMachineTimelineRequest{MachineId: "m-1", At: first})
	if err != nil || then.GetState().GetStatus().GetPhase() != pb.MachineStatus_FACTORY_READY ||
		then.GetEntries()[0].GetTs().AsTime() != first.AsTime() {
		t.Errorf("%v, %v", then, err)
	}
	last, err := r.Machines.GetMachineTimeline(t.Context(),
		&pb.GetMachineTimelineRequest{MachineId: "m-1", Since: up[len(up)-1].GetTs()})
	if err != nil || last.GetState().GetStatus().GetPhase() != pb.MachineStatus_MAINTENANCE ||
		len(last.GetEntries()) >= len(up) {
		t.Errorf("%v, %v", last, err)
	}
	before, err := r.Machines.GetMachineTimeline(t.Context(),
		&pb.GetMachineTimelineRequest{MachineId: "m-1", At: &timestamppb.Timestamp{Seconds: 1}})
	if err != nil || before.GetState() != nil || len(before.GetEntries()) != 0 {
		t.Errorf("%v, %v", before, err)
	}
}

func TestVerdictsByPages(t *testing.T) {
	r := publictest.NewRig(t)
	for _, id := range []string{"m-1", "m-2", "m-3"} {
		r.Register(&pb.Machine{MachineId: id})
	}
	var ids []string
	for token := ""; ; {
		page, err := r.Machines.VerifyTimeline(t.Context(), &pb.VerifyTimelineRequest{PageSize: 2, PageToken: token})
		if err != nil || page.GetTotal() != 4 {
			t.Fatalf("%v, %v", page, err)
		}
		for _, v := range page.GetVerdicts() {
			if !v.GetOk() || v.GetMachineId() != "" && v.GetEntries() < 1 {
				t.Errorf("%v", v)
			}
			ids = append(ids, v.GetMachineId())
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if want := []string{"", "m-1", "m-2", "m-3"}; !slices.Equal(ids, want) {
		t.Errorf("%q, want %q", ids, want)
	}
}
