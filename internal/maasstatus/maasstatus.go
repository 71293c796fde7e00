// Package maasstatus names the statuses of a machine in a MAAS region, and their meaning here. It is data: agents act
// by it, the controller shows it and compares it with the node's state. MAAS owns the status; nothing here changes it.
package maasstatus

import "slices"

// Status is a machine's status as in MAAS's API 2.0 in "status" (maasserver/enum.py, NODE_STATUS).
type Status int

// Every status that MAAS has.
const (
	New                      Status = 0
	Commissioning            Status = 1
	FailedCommissioning      Status = 2
	Missing                  Status = 3
	Ready                    Status = 4
	Reserved                 Status = 5
	Deployed                 Status = 6
	Retired                  Status = 7
	Broken                   Status = 8
	Deploying                Status = 9
	Allocated                Status = 10
	FailedDeployment         Status = 11
	Releasing                Status = 12
	FailedReleasing          Status = 13
	DiskErasing              Status = 14
	FailedDiskErasing        Status = 15
	RescueMode               Status = 16
	EnteringRescueMode       Status = 17
	FailedEnteringRescueMode Status = 18
	ExitingRescueMode        Status = 19
	FailedExitingRescueMode  Status = 20
	Testing                  Status = 21
	FailedTesting            Status = 22
)

// State is what a status means. It is an observation, and never stored as if it were ours.
type State string

// The states. Releasing, Testing and Rescue are those of work that MAAS does besides installing.
const (
	StateNew           State = "New"
	StateCommissioning State = "Commissioning"
	StateReady         State = "Ready"
	StateAllocated     State = "Allocated"
	StateDeploying     State = "Deploying"
	StateDeployed      State = "Deployed"
	StateFailed        State = "Failed"
	StateAbsent        State = "Absent"
	StateReleasing     State = "Releasing"
	StateTesting       State = "Testing"
	StateRescue        State = "Rescue"
	// StateUnknown is that of a status that this version does not know, or of a region that does not answer.
	StateUnknown State = "Unknown"
)

// Row is one line of the table.
type Row struct {
	Status Status
	// Name as in MAAS's "status_name".
	Name  string
	State State
	// Moves is set when MAAS is at work and the status will change by itself.
	Moves bool
	// Means is its meaning for us.
	Means string
}

var table = []Row{
	{New, "New", StateNew, false, "discovered, and not accepted or commissioned"},
	{Commissioning, "Commissioning", StateCommissioning, true, "MAAS is commissioning the machine"},
	{FailedCommissioning, "Failed commissioning", StateFailed, false, "commissioning has failed"},
	{Missing, "Missing", StateFailed, false, "MAAS has the machine and cannot contact it"},
	{Ready, "Ready", StateReady, false, "editable, and not deployed"},
	{Reserved, "Reserved", StateAllocated, false, "set aside for a named deployment"},
	{Deployed, "Deployed", StateDeployed, false, "the system is deployed"},
	{Retired, "Retired", StateFailed, false, "taken out of service in MAAS, until an administrator overrides that"},
	{Broken, "Broken", StateFailed, false, "marked as broken in MAAS"},
	{Deploying, "Deploying", StateDeploying, true, "the system is being deployed"},
	{Allocated, "Allocated", StateAllocated, false, "allocated, and not deployed"},
	{FailedDeployment, "Failed deployment", StateFailed, false, "the deployment has failed"},
	{Releasing, "Releasing", StateReleasing, true, "on its way to Ready"},
	{FailedReleasing, "Releasing failed", StateFailed, false, "the release has failed"},
	{DiskErasing, "Disk erasing", StateReleasing, true, "the disks are being erased, on the way to Ready"},
	{FailedDiskErasing, "Failed disk erasing", StateFailed, false, "the disks are not erased"},
	{RescueMode, "Rescue mode", StateRescue, false, "runs MAAS's rescue system"},
	{EnteringRescueMode, "Entering rescue mode", StateRescue, true, "on its way into the rescue system"},
	{FailedEnteringRescueMode, "Failed to enter rescue mode", StateFailed, false, "did not come up in the rescue system"},
	{ExitingRescueMode, "Exiting rescue mode", StateRescue, true, "on its way out of the rescue system"},
	{FailedExitingRescueMode, "Failed to exit rescue mode", StateFailed, false, "did not leave the rescue system"},
	{Testing, "Testing", StateTesting, true, "hardware tests are running"},
	{FailedTesting, "Failed testing", StateFailed, false, "hardware tests have failed"},
}

// Table lists every status.
func Table() []Row { return slices.Clone(table) }

// Of returns the row of a status; ok is false for one that this version does not know.
func Of(s Status) (row Row, ok bool) {
	if s < 0 || int(s) >= len(table) {
		return Row{Status: s, Name: "", State: StateUnknown}, false
	}
	return table[s], true
}

// States lists every state.
func States() []State {
	return []State{
		StateNew, StateCommissioning, StateReady, StateAllocated, StateDeploying, StateDeployed, StateFailed, StateAbsent,
		StateReleasing, StateTesting, StateRescue, StateUnknown,
	}
}
