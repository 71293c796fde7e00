package view

import (
	"bytes"
	"encoding/json"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Inventory shows an inventory: where it comes from, then the document.
func (s Style) Inventory(i *pb.Inventory) string {
	f := &Fields{}
	f.Add("Machine", i.GetMachineId())
	f.Add("Reported", Time(i.GetReportedAt()))
	f.Add("Hash", i.GetHash())
	if i.GetSimulated() {
		f.Add("Simulated", s.Warn("yes, this is not real hardware"))
	}
	var doc bytes.Buffer
	if err := json.Indent(&doc, i.GetDocument(), "", "  "); err != nil {
		doc.Reset()
		doc.WriteString(Clean(string(i.GetDocument())))
	}
	return f.String() + "\n" + doc.String() + "\n"
}
