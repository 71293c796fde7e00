package view

import (
	"bytes"
	"encoding/json"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Timeline is the table of `ingot timeline`.
func (s Style) Timeline(entries []*pb.TimelineEntry) *Table {
	t := &Table{Header: []string{"TIME", "KIND", "ACTOR", "OPERATION_ID", "SUMMARY"}}
	for _, e := range entries {
		t.Add(Time(e.GetTs()), e.GetKind(), Clean(e.GetActor()), e.GetOperationId(), Clean(e.GetSummary()))
	}
	return t
}

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
