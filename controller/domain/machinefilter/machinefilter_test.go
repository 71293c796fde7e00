package machinefilter_test

import (
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/machinefilter"
)

func TestFilters(t *testing.T) {
	m := &pb.Machine{
		MachineId: "m-1", Labels: map[string]string{"env": "prod", "empty": ""},
		Spec: &pb.MachineSpec{Provider: "agent", Site: "berlin", Region: "eu", Rack: "r42", Group: "g1"},
		Status: &pb.MachineStatus{
			Phase: pb.MachineStatus_MAINTENANCE, EffectiveState: pb.MachineStatus_BUSY,
			NodeState: pb.NodeState_NODE_STATE_ACTIVE, ActiveOperationId: "op-1", OsImageDigest: "sha256:ab",
			Conditions: []*pb.Condition{{Type: "Reachable", Status: true, Known: true},
				{Type: "RMA", Status: true, Known: true}, {Type: "Retired", Known: true},
				{Type: "BMCReachable"}, {Type: "HardwareFault", Status: true}},
		},
	}
	for filter, want := range map[string]bool{
		"": true, "machine_id=m-1": true, "machine_id=m-2": false, "site=berlin": true, "site=berlin,rack=r42": true,
		"site=berlin,rack=r1": false,
		"provider=agent":      true, "region=eu": true, "group=g1": true, "group=": false,
		"labels.env=prod": true, "labels.env=dev": false, `labels.none=""`: false, `labels.empty=""`: true,
		"rack!=r42": false, "rack in (r1, r42)": true, "rack=r4*": true, "labels.none!=x": true, "labels.env=p*": true,
		"phase!=RMA": false, "phase not in (READY, RETIRED)": true, "effective_state!=IDLE": true, `site="berlin`: false,
		"phase=MAINTENANCE": true, "phase=READY": false, "phase=PROVISIONING": true, "phase=RMA": true,
		"phase=RETIRED": false, "phase=IN_SERVICE": false,
		"effective_state=BUSY": true, "effective_state=IDLE": false, "node_state=active": true, "node_state=pending": false,
		"conditions.Reachable=true": true, "conditions.Reachable=false": false, "conditions.Retired=false": true,
		"conditions.NeverHeard=false": true, "conditions.NeverHeard=unknown": false,
		"conditions.BMCReachable=unknown": true, "conditions.BMCReachable=false": false,
		"conditions.BMCReachable!=true": true, "conditions.BMCReachable!=false": true,
		"conditions.HardwareFault=true": true, "conditions.HardwareFault=unknown": false,
		"conditions.Reachable!=unknown": true, "attention_reason=NOT_OBSERVED": false,
		"attention_reason!=NOT_OBSERVED": true,
		"image=sha256:*":                 true, "image!=*": false, "location=*": false, "location!=x": true,
		"unknown=x": false,
	} {
		if got := machinefilter.Parse(filter).Matches(m); got != want {
			t.Errorf("%q: %v", filter, got)
		}
		if f := machinefilter.Parse(filter); f.MatchesAny([]*pb.Machine{nil, m}) != want ||
			f.MatchesAny(nil) != (filter == "") {
			t.Errorf("%q of one machine among others, and of none", filter)
		}
		if got := machinefilter.Parse(filter).Matches(nil); got != (filter == "") {
			t.Errorf("%q of no machine: %v", filter, got)
		}
	}
}
