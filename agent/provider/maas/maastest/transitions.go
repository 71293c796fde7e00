package maastest

import (
	"slices"

	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// transitions are the ways between statuses that MAAS knows (src/maasserver/node_status.py, NODE_TRANSITIONS). It
// refuses any other (models/node.py, Node._validate_status_transition).
var transitions = map[ms.Status][]ms.Status{
	ms.New: {ms.Commissioning, ms.Testing, ms.Missing, ms.Ready, ms.Retired, ms.Broken,
		ms.EnteringRescueMode},
	ms.Commissioning:       {ms.FailedCommissioning, ms.Ready, ms.Retired, ms.Missing, ms.New, ms.Broken, ms.Testing},
	ms.FailedCommissioning: {ms.Commissioning, ms.Missing, ms.Retired, ms.Broken, ms.EnteringRescueMode, ms.Testing},
	ms.Ready: {
		ms.EnteringRescueMode, ms.Commissioning, ms.Allocated, ms.Reserved, ms.Retired, ms.Missing, ms.Broken, ms.Testing,
	},
	ms.Reserved: {
		ms.Ready, ms.Allocated, ms.Retired, ms.Missing, ms.Broken, ms.DiskErasing, ms.Releasing, ms.EnteringRescueMode,
		ms.Testing,
	},
	ms.Allocated: {
		ms.Ready, ms.Retired, ms.Missing, ms.Broken, ms.Deploying, ms.DiskErasing, ms.Releasing, ms.EnteringRescueMode,
		ms.Testing,
	},
	ms.Releasing: {
		ms.New, ms.Allocated, ms.Reserved, ms.Deployed, ms.Ready, ms.Broken, ms.Missing, ms.FailedDeployment,
		ms.FailedDiskErasing,
		ms.FailedReleasing,
	},
	ms.Deploying: {
		ms.Allocated, ms.Missing, ms.Broken, ms.FailedDeployment, ms.Deployed, ms.Ready, ms.DiskErasing, ms.Releasing,
	},
	ms.FailedDeployment: {
		ms.Allocated, ms.Missing, ms.Broken, ms.Ready, ms.DiskErasing, ms.Releasing, ms.EnteringRescueMode, ms.Testing,
	},
	ms.Deployed: {
		ms.Allocated, ms.Missing, ms.Broken, ms.Ready, ms.DiskErasing, ms.Releasing, ms.EnteringRescueMode, ms.Testing,
	},
	ms.Missing: {ms.New, ms.Ready, ms.Allocated, ms.Commissioning, ms.Broken, ms.EnteringRescueMode, ms.Testing},
	ms.Retired: {ms.New, ms.Ready, ms.Missing, ms.Broken, ms.EnteringRescueMode, ms.Testing},
	ms.Broken: {
		ms.Commissioning, ms.Ready, ms.DiskErasing, ms.Releasing, ms.EnteringRescueMode, ms.Testing, ms.Deployed,
	},
	ms.FailedReleasing: {ms.Releasing, ms.DiskErasing, ms.Ready, ms.Broken, ms.Testing},
	ms.DiskErasing:     {ms.Broken, ms.FailedDiskErasing, ms.Ready, ms.Releasing},
	ms.FailedDiskErasing: {
		ms.DiskErasing, ms.Releasing, ms.Broken, ms.Allocated, ms.Ready, ms.EnteringRescueMode, ms.Testing,
	},
	ms.EnteringRescueMode: {
		ms.Ready, ms.Broken, ms.Deployed, ms.RescueMode, ms.FailedEnteringRescueMode, ms.ExitingRescueMode,
	},
	ms.FailedEnteringRescueMode: {ms.Broken, ms.EnteringRescueMode, ms.ExitingRescueMode, ms.Testing},
	ms.RescueMode:               {ms.Broken, ms.ExitingRescueMode, ms.Testing},
	ms.ExitingRescueMode: {
		ms.New, ms.Broken, ms.FailedCommissioning, ms.Ready, ms.Reserved, ms.Allocated, ms.FailedDeployment, ms.Deployed,
		ms.Missing,
		ms.Retired, ms.FailedReleasing, ms.FailedDiskErasing, ms.RescueMode, ms.FailedEnteringRescueMode,
		ms.FailedExitingRescueMode,
		ms.FailedTesting,
	},
	ms.FailedExitingRescueMode: {ms.Broken, ms.ExitingRescueMode, ms.Testing},
	ms.Testing: {
		ms.Broken, ms.New, ms.Ready, ms.Reserved, ms.Allocated, ms.Deployed, ms.Commissioning, ms.FailedDeployment,
		ms.Missing,
		ms.Retired, ms.FailedReleasing, ms.FailedDiskErasing, ms.FailedEnteringRescueMode, ms.FailedExitingRescueMode,
		ms.FailedTesting,
	},
	ms.FailedTesting: {
		ms.Commissioning, ms.Broken, ms.Missing, ms.EnteringRescueMode, ms.Testing, ms.Ready, ms.Deployed,
	},
}

// follows reports whether MAAS lets one status follow another. None is always followed by itself.
func follows(from, to ms.Status) bool { return from == to || slices.Contains(transitions[from], to) }

// before lists the statuses that may be followed by one.
func before(to ms.Status) (out []ms.Status) {
	for _, row := range ms.Table() {
		if slices.Contains(transitions[row.Status], to) {
			out = append(out, row.Status)
		}
	}
	return out
}
