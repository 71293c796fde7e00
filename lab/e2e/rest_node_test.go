package e2e

import "testing"

// TestRESTMovesANode by the body that REST's users know: a state, a comment and force. Sent twice, it is one move.
func TestRESTMovesANode(t *testing.T) {
	t.Parallel()
	_, rest := restCluster(t)
	rest.must("POST", "/machines", `{"machine_id": "m-1"}`)
	op := rest.must("POST", "/nodes/m-1/transition", `{"state": "pending", "comment": "rack 7", "force": false}`)
	if op["phase"] != "SUCCEEDED" || op["type"] != "NODE_TRANSITION" {
		t.Errorf("the move is %v", op)
	}
	if again := rest.must("POST", "/nodes/m-1/transition",
		`{"state": "pending", "comment": "rack 7", "force": false}`); again["operation_id"] != op["operation_id"] {
		t.Errorf("sent again: %v", again)
	}
	h := rest.must("GET", "/nodes/m-1/history?limit=50&offset=0", "")
	if rows := h["data"].([]any); h["total"] != 1.0 || len(rows) != 1 || rows[0].(document)["comment"] != "rack 7" ||
		rows[0].(document)["triggered_by"] != "admin" {
		t.Errorf("history %v", h)
	}
	rest.refused("POST", "/nodes/m-1/transition", `{"state": "active"}`, 400, "NODE_TRANSITION_ILLEGAL")
	rest.refused("POST", "/nodes/m-1/transition", `{"state": "reprovision"}`, 400, "REQUEST_ID_REQUIRED")
	rest.refused("POST", "/nodes/m-2/transition", `{"state": "pending"}`, 404, "MACHINE_NOT_FOUND")
	rest.must("POST", "/nodes/m-1/transition", `{"state": "NODE_STATE_RETIRED", "request_id": "out"}`)
	rest.refused("POST", "/nodes/m-1/transition",
		`{"state": "retired", "comment": "other", "request_id": "out", "force": true}`, 409, "REQUEST_ID_REUSED")
}
