package config

import "testing"

// TestDefaultPorts: clients, agents and enrolment have the ports that were published, and REST has none unless it is
// asked for.
func TestDefaultPorts(t *testing.T) {
	got := Default().Listen
	want := Listen{Frontpage: ":50051", Fleet: ":50052", Enrolment: ":50053", HTTP: "127.0.0.1:8080"}
	if got != want {
		t.Errorf("listens on %+v, want %+v", got, want)
	}
}
