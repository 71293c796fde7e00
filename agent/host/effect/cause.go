// Package effect names the commands that change a machine, and the refusals of machines that they cannot change.
//
// A Refusal means that nothing was changed. Any other error leaves the outcome open, and the caller reads the world.
package effect

// Cause names the command that causes an effect, so that the world can be asked afterwards who did what, and
// how often. MachineID is the fleet's name of the target, not the machine-id of its operating system.
type Cause struct {
	CommandID   string `json:"command_id"`
	OperationID string `json:"operation_id,omitempty"`
	MachineID   string `json:"machine_id,omitempty"`
	Attempt     int    `json:"attempt,omitempty"`
}
