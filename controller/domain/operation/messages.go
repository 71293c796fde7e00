package operation

// StartedText returns the text of the event that a step of the kind has started; empty for an unknown kind.
func StartedText(k Kind) string { return startedTexts[k] }

// DoneText returns the text of the event that a step of the kind has succeeded; empty for an unknown kind.
func DoneText(k Kind) string { return doneTexts[k] }

// The texts of step_started and step_succeeded events.
var (
	startedTexts = map[Kind]string{
		KindReboot:       "Rebooting machine",
		KindNetboot:      "Setting netboot",
		KindRepave:       "Repaving",
		KindReconfig:     "Reconfiguring host",
		KindWaitForAgent: "Waiting for the machine's agent",
		KindSetPhase:     "Changing phase",
		KindErase:        "Erasing disks",
		KindReset:        "Resetting accelerators",
		KindTestHardware: "Testing hardware",
		KindSSH:          "Running script",
		KindRMA:          "Changing the RMA flag",
		KindStage:        "Checking",
		KindJoin:         "Joining cluster",
		KindVerify:       "Verifying in cluster",
		KindDrain:        "Draining",
		KindUncordon:     "Uncordoning",
		KindProvider:     "Asking the provider",
	}
	doneTexts = map[Kind]string{
		KindReboot:       "Reboot complete",
		KindNetboot:      "Netboot configured",
		KindRepave:       "Repave complete",
		KindReconfig:     "Host reconfigured",
		KindWaitForAgent: "Agent is up",
		KindSetPhase:     "Phase changed",
		KindErase:        "Disks erased",
		KindReset:        "Accelerators reset",
		KindTestHardware: "Hardware tested",
		KindSSH:          "Script has ended",
		KindRMA:          "RMA flag changed",
		KindStage:        "Checked",
		KindJoin:         "Cluster joined",
		KindVerify:       "Node is ready",
		KindDrain:        "Node drained",
		KindUncordon:     "Node takes pods again",
		KindProvider:     "The provider shows it",
	}
)
