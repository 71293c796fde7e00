package view

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func TestExplainSheet(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 1, 38, 0, time.UTC)
	at := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(d)) }
	got := Style{Now: now}.Explain(&pb.ExplainMachineResponse{
		MachineId: "m-1", OperationId: "op-1", Step: "repave-os", StepKind: "repave", WaitsOn: "dhcp",
		WaitsFor: "a DHCP request from 52:54:00:12:34:56",
		Summary:  "REIMAGE, step repave-os, waits for the installer\x1b[2J", Reason: "INSTALLER_SILENT",
		Since:         at(-90 * time.Second),
		StepStartedAt: at(-98 * time.Second), StepP50Seconds: 40, StepP95Seconds: 65, StepSamples: 120,
		StepPopulation: "group web", Stuck: true,
		NextAction: "gives up with INSTALLER_SILENT", NextActionAt: at(110 * time.Second), LastEvidence: "the power is on",
		LastEvidenceAt: at(-time.Minute),
		Facts:          []string{"the BMC says that the power is on"},
		Actions: []*pb.OperatorAction{
			{Command: "ingot logs op-1", Consequence: "shows the log"},
			{Command: "ingot cancel op-1", Consequence: "the disk may not boot", Destructive: true},
		},
	})
	want := `REIMAGE, step repave-os, waits for the installer[2J
stuck: it runs far longer than such a step does, and nothing automatic will end it soon

Machine:       m-1
Operation:     op-1
Step:          repave-os (repave)
Reason:        INSTALLER_SILENT
WaitsOn:       dhcp: a DHCP request from 52:54:00:12:34:56
Since:         2026-03-01T12:00:08Z (1m 30s ago)
Normal:        half take up to 40s, 95% up to 1m 05s (120 steps, group web); this one runs 1m 38s
Next:          gives up with INSTALLER_SILENT, at 2026-03-01T12:03:28Z (in 1m 50s)
LastEvidence:  the power is on, 2026-03-01T12:00:38Z (1m 00s ago)

What this is read from:
  - the BMC says that the power is on

You can:
   ingot logs op-1
      shows the log
 ! ingot cancel op-1
      the disk may not boot
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestExplainSheetOfAQuietMachine(t *testing.T) {
	got := Style{}.Explain(&pb.ExplainMachineResponse{MachineId: "m-1", Summary: "in service", WaitsOn: "nobody"})
	if got != "in service\n\nMachine:  m-1\nWaitsOn:  nobody\n" || strings.Contains(got, "You can") {
		t.Errorf("%q", got)
	}
}
