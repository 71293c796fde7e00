package encode

import (
	"encoding/json"
	"strings"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func TestInventoryDocumentIsJSON(t *testing.T) {
	raw, err := JSON(&pb.Inventory{MachineId: "m-1", Document: []byte(`{"cpu":{"cores":8}}`)})
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		MachineID string `json:"machine_id"`
		Document  struct{ CPU struct{ Cores int } }
	}
	if err := json.Unmarshal(raw, &doc); err != nil || doc.Document.CPU.Cores != 8 || doc.MachineID != "m-1" {
		t.Errorf("%v: %s", err, raw)
	}
}

func TestYAMLKeepsStringsStrings(t *testing.T) {
	raw, err := YAML(&pb.MachineSpec{Rack: "42", Serial: "yes", MacAddresses: []string{"52:54:00:12:34:56"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{`rack: "42"`, `serial: "yes"`, `  - "52:54:00:12:34:56"`} {
		if !strings.Contains(string(raw), line) {
			t.Errorf("%s is missing in:\n%s", line, raw)
		}
	}
}
