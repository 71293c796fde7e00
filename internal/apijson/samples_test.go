package apijson_test

import (
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/apijson"
)

// The samples of the API's documentation, as they are written there.
const (
	sampleMachine = `{
		"machine_id": "m-123",
		"labels": {"env": "prod", "role": "worker", "provider": "dc-1"},
		"spec": {
			"ssh_endpoint": "10.20.30.40:22", "bmc_endpoint": "10.20.30.41", "target_cluster_ref": "cluster-a",
			"mac_addresses": ["aa:bb:cc:dd:ee:ff"]
		},
		"status": {
			"phase": "READY",
			"conditions": [
				{"type": "Reachable", "status": true, "reason": "PingOK"},
				{"type": "BMCReachable", "status": true, "reason": "RedfishOK"},
				{"type": "InCustomerCluster", "status": false, "reason": "NotJoined"}
			],
			"active_run_id": ""
		}
	}`
	samplePlan = `{
		"plan_id": "plan-repave-ubuntu-2204-v1",
		"display_name": "Repave Ubuntu 22.04 + Join Cluster",
		"steps": [
			{"name": "set-netboot", "timeout_seconds": 60, "max_retries": 2, "netboot": {"mode": "PXE"}},
			{"name": "repave-os", "timeout_seconds": 1800, "max_retries": 1, "repave": {"image": "ubuntu-22.04"}},
			{"name": "reboot", "timeout_seconds": 300, "max_retries": 2, "reboot": {"mode": "bmc"}},
			{"name": "join-cluster", "timeout_seconds": 600, "max_retries": 1, "join": {"cluster_ref": "cluster-a"}},
			{"name": "verify", "timeout_seconds": 300, "max_retries": 0, "verify": {"cluster_ref": "cluster-a"}}
		]
	}`
	sampleRun = `{
		"run_id": "run-789", "machine_id": "m-123", "request_id": "req-456", "type": "REPAVE",
		"plan_id": "plan-repave-ubuntu-2204-v1", "phase": "RUNNING", "current_step": "repave-os",
		"steps": [
			{"name": "set-netboot", "state": "SUCCEEDED", "retry_count": 0},
			{"name": "repave-os", "state": "RUNNING", "retry_count": 0}
		],
		"created_at": "2026-01-29T15:10:00Z", "started_at": "2026-01-29T15:10:05Z", "finished_at": null
	}`
)

func TestDocumentedSamplesAreRead(t *testing.T) {
	var m pb.Machine
	if err := apijson.Unmarshal([]byte(sampleMachine), &m); err != nil {
		t.Fatal(err)
	}
	if m.GetSpec().GetTargetClusterRef() != "cluster-a" || m.GetStatus().GetPhase() != pb.MachineStatus_READY ||
		len(m.GetStatus().GetConditions()) != 3 ||
		m.GetStatus().GetConditions()[2].GetReason() != "NotJoined" {
		t.Errorf("machine %v", &m)
	}
	var p pb.Plan
	if err := apijson.Unmarshal([]byte(samplePlan), &p); err != nil {
		t.Fatal(err)
	}
	if len(p.GetSteps()) != 5 || p.GetSteps()[2].GetReboot().GetMode() != "bmc" ||
		p.GetSteps()[3].GetJoin().GetClusterRef() != "cluster-a" {
		t.Errorf("plan %v", &p)
	}
	var r pb.Run
	if err := apijson.Unmarshal([]byte(sampleRun), &r); err != nil {
		t.Fatal(err)
	}
	begun := time.Date(2026, 1, 29, 15, 10, 5, 0, time.UTC)
	if r.GetPhase() != pb.Run_RUNNING || r.GetSteps()[1].GetState() != pb.StepStatus_RUNNING ||
		!r.GetStartedAt().AsTime().Equal(begun) || r.GetFinishedAt() != nil {
		t.Errorf("run %v", &r)
	}
}
