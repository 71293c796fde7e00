package apijson_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/apijson"
)

func TestMaintenanceIsPrintedAndRead(t *testing.T) {
	m := &pb.ListMachinesResponse{Machines: []*pb.Machine{{
		MachineId: "m-1", Labels: map[string]string{"effective_state": "MAINTENANCE_IDLE"},
		Status: &pb.MachineStatus{EffectiveState: pb.MachineStatus_MAINTENANCE_IDLE},
	}}}
	line, err := apijson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	text := string(line)
	if !strings.Contains(text, `"effective_state":"MAINTENANCE"`) ||
		!strings.Contains(text, `{"effective_state":"MAINTENANCE_IDLE"}`) {
		t.Errorf("printed as %s", text)
	}
	back := &pb.ListMachinesResponse{}
	if err := apijson.Unmarshal(line, back); err != nil || !proto.Equal(m, back) {
		t.Errorf("read back %v (%v)", back, err)
	}
}

func TestEnumsAsPeopleWriteThem(t *testing.T) {
	for _, text := range []string{"NODE_STATE_PENDING", "PENDING", "pending", "node_state_pending", "Pending"} {
		r := &pb.TransitionNodeRequest{}
		if err := apijson.Unmarshal([]byte(`{"state": "`+text+`", "force": true}`), r); err != nil ||
			r.GetState() != pb.NodeState_NODE_STATE_PENDING || !r.GetForce() {
			t.Errorf("%s: %v (%v)", text, r, err)
		}
	}
}

func TestFaultsNameTheirPlace(t *testing.T) {
	cases := []struct {
		text string
		into proto.Message
		want string
	}{
		{`{"machine_id": "m", "colour": 1, "shape": 2}`, &pb.RebootMachineRequest{},
			`colour: unknown field of RebootMachineRequest; shape: unknown field of RebootMachineRequest`},
		{`{"timeout_seconds": "soon"}`, &pb.RebootMachineRequest{},
			`timeout_seconds: invalid value for int32 field timeoutSeconds: "soon"`},
		{`{"spec": {"rack": 7, "racks": ""}}`, &pb.Machine{},
			`spec.rack: invalid value for string field rack: 7; spec.racks: unknown field of MachineSpec`},
		{`{"segments": [{"name": "a"}, {"nam": "b"}]}`, &pb.Site{}, `segments[1].nam: unknown field of Segment`},
		{`{"spec": []}`, &pb.Machine{}, `spec: is not an object`},
		{`{"labels": {"a": 1}}`, &pb.Machine{}, `labels: invalid value for string field value: 1`},
		{`{"state": "asleep"}`, &pb.TransitionNodeRequest{}, `state: invalid value for enum field state: "asleep"`},
		{`{"created_at": "yesterday"}`, &pb.Machine{}, `created_at: invalid google.protobuf.Timestamp value "yesterday"`},
		{`{"state": "pending", "state": "active"}`, &pb.TransitionNodeRequest{}, `"state" stands twice in one object`},
		{`{"state": "pending"} {}`, &pb.TransitionNodeRequest{}, `there is more than one JSON document`},
		{`{"state": `, &pb.TransitionNodeRequest{}, `not JSON: it ends early`},
		{`[]`, &pb.TransitionNodeRequest{}, `is not an object`},
		{strings.Repeat("[", 100_000), &pb.Machine{}, `nested more than 64 deep`},
		{`{"reboot": {}, "repave": {}}`, &pb.Step{}, `error parsing "repave", oneof baremetal.v1.Step.kind is already set`},
	}
	for _, c := range cases {
		err := apijson.Unmarshal([]byte(c.text), c.into)
		var faults apijson.Faults
		if !errors.As(err, &faults) || err.Error() != c.want {
			t.Errorf("%.60s: %v, want %s", c.text, err, c.want)
		}
	}
}

func TestFieldMasksInBothSpellings(t *testing.T) {
	for _, text := range []string{"plan_id,group", "planId,group"} {
		r := &pb.UpdateNodeRequest{}
		if err := apijson.Unmarshal([]byte(`{"update_mask": "`+text+`"}`), r); err != nil ||
			!slices.Equal(r.GetUpdateMask().GetPaths(), []string{"plan_id", "group"}) {
			t.Errorf("%s: %v (%v)", text, r, err)
		}
	}
}

func TestBothSpellingsOfFieldNames(t *testing.T) {
	for _, text := range []string{`{"request_id": "q", "state": "retired"}`, `{"requestId": "q", "state": "retired"}`} {
		r := &pb.TransitionNodeRequest{}
		if err := apijson.Unmarshal([]byte(text), r); err != nil || r.GetRequestId() != "q" {
			t.Errorf("%s: %v (%v)", text, r, err)
		}
	}
}
