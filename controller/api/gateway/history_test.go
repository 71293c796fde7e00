package gateway_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// The history of a node has the JSON that its API asks for: ids are UUIDs, states have their plain names, absent values
// are null, numbers are numbers.
func TestNodeHistoryHasItsOwnJSON(t *testing.T) {
	r := newRig(t)
	at := time.Date(2026, 1, 21, 10, 30, 0, 0, time.UTC)
	r.double.tell(nil, &pb.GetNodeHistoryResponse{Total: 15, Data: []*pb.NodeStateLog{
		{
			Id: "7", Uuid: "9f2c1a52-93c0-8d1e-b0aa-0c5f3a3f8c11", FromState: pb.NodeState_NODE_STATE_INSTALLING,
			ToState: pb.NodeState_NODE_STATE_INSTALL_FAILED, TriggeredBy: "node_report",
			Metadata: map[string]string{"error": "Disk not found", "attempt": "3"}, CreatedAt: timestamppb.New(at),
		},
		{Uuid: "u", FromState: pb.NodeState_NODE_STATE_ACTIVE, ToState: pb.NodeState_NODE_STATE_QUARANTINED, UserId: "alice",
			Comment: "3", CreatedAt: timestamppb.New(at)},
	}})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+
		"/api/v1/nodes/m-1/history?limit=50&offset=0", nil)
	if err != nil {
		t.Fatal(err)
	}
	code, body := r.do(req)
	want := `{"data": [
		{"id": "9f2c1a52-93c0-8d1e-b0aa-0c5f3a3f8c11", "from_state": "installing", "to_state": "install_failed", "triggered_by": "node_report",
		 "user_id": null, "comment": null, "metadata": {"error": "Disk not found", "attempt": 3}, "created_at": "2026-01-21T10:30:00Z"},
		{"id": "u", "from_state": "active", "to_state": "quarantined", "triggered_by": "", "user_id": "alice", "comment": "3", "metadata": null,
		 "created_at": "2026-01-21T10:30:00Z"}], "total": 15}`
	if code != http.StatusOK || !reflect.DeepEqual(parsed(t, body), parsed(t, []byte(want))) {
		t.Errorf("answered %d %s", code, body)
	}
}

func parsed(t *testing.T, raw []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return v
}
