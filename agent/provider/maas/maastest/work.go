package maastest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// commission is models/node.py, Node.start_commissioning, and metadataserver/api.py, _process_commissioning and
// _process_testing: the machine has the caller for its owner until it is Ready, or commissioning has failed; its
// storage and its addresses are set anew.
func (r *Region) commission(m *Machine) {
	r.asked(m, "User starting node commissioning", "")
	r.log(m, info, "Commissioning", "")
	m.before, m.Owner, m.Layout = m.Status, User, "flat"
	r.powerUp(m)
	r.move(m, ms.Commissioning)
	r.after(m, func() {
		if text, bad := fails(&m.FailCommission); bad {
			r.markFailed(m, ms.FailedCommissioning, text)
			m.Owner = "" // metadataserver/api_twisted.py, _processMessage
			return
		}
		m.before = m.Status
		r.move(m, ms.Testing)
		r.after(m, func() {
			if text, bad := fails(&m.FailTest); bad {
				r.log(m, info, "Failed testing", text)
				r.move(m, ms.FailedTesting)
				return
			}
			r.log(m, info, "Ready", "")
			r.move(m, ms.Ready)
			m.Power, m.Uncommissioned = "off", false
		})
	})
}

// acquire is models/node.py, Node.acquire.
func (r *Region) acquire(m *Machine, comment string) {
	r.asked(m, "User acquiring node", comment)
	m.Owner = User
	r.move(m, ms.Allocated)
}

// installing is what metadataserver/api_twisted.py logs of a deployment that goes well: the beginning of everything
// that cloud-init and curtin do, in cloud-init's words, and no end.
var installing = []string{
	"'cloudinit' searching for local datasources", "'cloudinit' searching for network datasources",
	"'cloudinit' searching for network data from DataSourceMAAS", "'cloudinit' running modules for config",
	"'cloudinit' running config-scripts_user with frequency once-per-instance", "'curtin' curtin command install",
	"'curtin' preparing for installation", "'curtin' configuring storage",
}

// deploy is api/machines.py, MachineHandler.deploy, and models/node.py, Node.start. The system to deploy shows at once.
func (r *Region) deploy(m *Machine, series, comment string, sync bool) {
	if m.Status == ms.Ready {
		r.acquire(m, comment)
	}
	if series == "" {
		series = "noble" // the region's default_distro_series
	}
	m.Series, m.HWSync = series, sync
	r.asked(m, "User starting deployment", comment)
	r.log(m, info, "Deploying", "")
	r.move(m, ms.Deploying)
	r.powerUp(m)
	r.after(m, func() {
		text, bad := fails(&m.FailDeploy)
		// status_monitor.py, mark_nodes_failed_after_expiring: nothing was heard
		if bad && strings.Contains(text, "timed out") {
			r.markFailed(m, ms.FailedDeployment, text)
			return
		}
		for _, line := range installing {
			r.log(m, debug, "Node installation", line)
		}
		if bad { // the comment of MAAS's own is fixed; here it repeats the cause, which MAAS has in an event
			r.log(m, failed, "Node installation failure", "'curtin' "+text)
			r.markFailed(m, ms.FailedDeployment, "Installation failed (refer to the installation log for more information). "+
				text)
			return
		}
		r.log(m, info, "Deployed", "")
		r.move(m, ms.Deployed)
	})
}

// release is models/node.py, Node.start_releasing: one script, to erase, shows as Disk erasing; any more as Releasing.
func (r *Region) release(c query, m *Machine) {
	scripts, secure, quick := r.erasing(c)
	comment := c.form.Get("comment")
	if len(scripts) == 0 || m.SkipErase {
		r.asked(m, "User releasing node", comment)
		r.powerDown(m)
		return
	}
	failedStatus, status, kind, text := ms.FailedReleasing, ms.Releasing, "User releasing node",
		"Failed to release machine."
	if len(scripts) == 1 {
		failedStatus, status, kind, text = ms.FailedDiskErasing, ms.DiskErasing, "User erasing disk", "Failed to erase disks."
	}
	r.asked(m, kind, comment)
	r.move(m, status)
	r.powerUp(m)
	r.after(m, func() {
		if cause, bad := fails(&m.FailErase); bad {
			r.markFailed(m, failedStatus, text+" "+cause)
			return
		}
		if secure || !quick {
			m.erased++
		}
		// metadataserver/api.py, _process_disk_erasing and _process_releasing.
		if status == ms.DiskErasing {
			r.log(m, info, "Disks erased", "")
		} else {
			r.log(m, info, "Release scripts executed successfully.", "")
		}
		r.log(m, debug, "User releasing node", "") // the system releases it: metadataserver/api_twisted.py, _processMessage
		r.powerDown(m)
	})
}

// powerDown is models/node.py, Node._release: the deployed system is removed at once, the owner and the annotations
// when the machine is off. A machine that is off, or that nothing switches, is Ready without delay.
func (r *Region) powerDown(m *Machine) {
	r.log(m, info, "Releasing", "")
	r.move(m, ms.Releasing)
	m.Series, m.HWSync = "", false
	if m.Power == "off" || m.PowerType == "manual" {
		r.finalize(m)
		return
	}
	r.after(m, func() {
		if text, bad := fails(&m.FailRelease); bad {
			r.markFailed(m, ms.FailedReleasing, text)
			return
		}
		if m.NoSwitch { // status_monitor.py, and node_status.py, NODE_FAILURE_MONITORED_STATUS_TIMEOUTS
			r.markFailed(m, ms.FailedReleasing, "Node operation 'Releasing' timed out after 5 minutes.")
			return
		}
		m.Power = "off"
		r.finalize(m)
	})
}

// powerUp switches a machine on for work (models/node.py, Node._start). A machine of power type manual is on at
// once here: in MAAS a person switches it.
func (r *Region) powerUp(m *Machine) {
	m.Power = "on"
}

// powerless returns the answer to a request whose transaction is committed, when nothing can switch the machine. It is
// models/node.py, Node._start_bmc_unavailable, and the errbacks of start_releasing and _release. An erasure cannot go
// back to what was before: MAAS answers that as a conflict, and without Retry-After.
func (r *Region) powerless(c query, was Machine) answer {
	busy := answer{status: http.StatusServiceUnavailable, body: "Unable to connect to any rack controller"}
	m := r.find(c.systemID)
	if m == nil {
		return busy
	}
	aborting := func(back ms.Status) answer {
		from, _ := ms.Of(m.Status)
		into, _ := ms.Of(back)
		m.then = nil
		r.log(m, warn, "Failed to query node's BMC",
			fmt.Sprintf("(%s) - Aborting %s and reverting to %s. Unable to power control the node. "+
				"Please check power credentials.", User, strings.ToUpper(from.Name), strings.ToUpper(into.Name)))
		r.move(m, back)
		return busy
	}
	from, _ := ms.Of(was.Status)
	switch {
	case c.op == "POST commission":
		return aborting(was.Status)
	case c.op == "POST deploy":
		return aborting(ms.Allocated)
	case c.op == "POST release" && m.Status == ms.DiskErasing:
		m.then = nil
		r.move(m, ms.FailedDiskErasing)
		return answer{status: http.StatusConflict, body: "Invalid transition: Disk erasing -> " + from.Name + "."}
	case c.op == "POST release" && m.Status == ms.Releasing && len(r.scripts(c)) > 0:
		m.then = nil
		r.move(m, ms.FailedReleasing)
		return busy
	case c.op == "POST release" && m.Status == ms.Releasing:
		m.then = nil
		r.move(m, was.Status)
		return busy
	}
	return busy
}

// scripts are those that a release runs.
func (r *Region) scripts(c query) []string { list, _, _ := r.erasing(c); return list }

// finalize is models/node.py, Node._finalize_release.
func (r *Region) finalize(m *Machine) {
	if m.Status != ms.Releasing {
		return // it was marked broken in between
	}
	if m.Uncommissioned {
		r.move(m, ms.New)
	} else {
		r.move(m, ms.Ready)
	}
	m.Owner, m.Annotations = "", nil
	r.log(m, info, "Released", "")
	if r.released != nil {
		r.released(m)
	}
}

// abort writes the event of an abort, and the status that follows once the machine is off (models/node.py,
// abort_commissioning, abort_testing, abort_deploying, abort_disk_erasing).
func (r *Region) abort(m *Machine, comment string) {
	to, kind, done := ms.New, "User aborting node commissioning", "Aborted commissioning"
	switch m.Status {
	case ms.Testing:
		to, kind, done = m.before, "User aborting node testing", "Aborted testing"
		if to == ms.Commissioning {
			to = ms.Ready // for a caller that doesn't want to wait for the tests
		}
	case ms.Deploying:
		to, kind, done = ms.Allocated, "User aborting deployment", "Aborted deployment"
	case ms.DiskErasing:
		to, kind, done = ms.FailedDiskErasing, "User aborting disk erase", "Aborted disk erasing"
	default:
		m.Owner = "" // abort_commissioning, at once
	}
	r.asked(m, kind, comment)
	r.log(m, info, done, "")
	m.aborting = true
	r.after(m, func() {
		m.aborting, m.Power = false, "off"
		r.move(m, to)
	})
}

// markBroken is models/node.py, Node.mark_broken: a machine in use is switched off and loses its deployed system.
func (r *Region) markBroken(m *Machine, comment string) {
	r.asked(m, "User marking node broken", comment)
	m.before, m.then = m.Status, nil
	if slices.Contains(releasable, m.Status) {
		r.powerDown(m)
		if m.then != nil { // its owner stays until the machine is released
			m.then = func() { m.Power = "off" }
		}
	}
	r.move(m, ms.Broken)
}

// markFixed is models/node.py, Node.mark_fixed: a Deployed machine is so again, and its system is unknown.
func (r *Region) markFixed(m *Machine, comment string) {
	r.asked(m, "User marking node fixed", comment)
	to := ms.Ready
	if m.before == ms.Deployed {
		to = ms.Deployed
	}
	m.Series = ""
	r.move(m, to)
}

// override is models/node.py, Node.override_failed_testing.
func (r *Region) override(m *Machine, comment string) {
	r.asked(m, "User overrode 'Failed testing' status", comment)
	to := ms.Ready
	if m.Series != "" {
		to = ms.Deployed
	}
	r.move(m, to)
}

// rescue is models/node.py, Node.start_rescue_mode and stop_rescue_mode. Who enters it is the owner.
func (r *Region) rescue(m *Machine, into bool) {
	if into {
		r.asked(m, "User starting rescue mode", "")
		m.before, m.Owner = m.Status, User
		r.move(m, ms.EnteringRescueMode)
		r.after(m, func() { r.move(m, ms.RescueMode) })
		return
	}
	r.asked(m, "User stopping rescue mode", "")
	r.move(m, ms.ExitingRescueMode)
	r.after(m, func() { r.move(m, m.before) })
}
