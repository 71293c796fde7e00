package maastest

import (
	"net/http"
	"slices"

	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// The rules are those of MAAS's published source: github.com/canonical/maas at 9e51f33c (August 2026), below
// src/maasserver. Each names its function.

// releasable are the statuses from which a machine is released (models/node.py, RELEASABLE_STATUSES). A machine that is
// Ready or Releasing answers 200, and nothing happens (api/machines.py, MachineHandler.release).
var releasable = []ms.Status{
	ms.Allocated, ms.Reserved, ms.Broken, ms.Deploying, ms.Deployed, ms.FailedDeployment, ms.FailedDiskErasing,
	ms.FailedReleasing,
}

// commissionable are those from which it is commissioned (node_action.py, Commission.actionable_statuses). Failed
// testing is none of them: its tests are overridden first.
var commissionable = []ms.Status{ms.New, ms.FailedCommissioning, ms.Ready, ms.Broken}

// abortable are those of work that is aborted (models/node.py, Node.abort_operation). Rescue mode is none of them.
var abortable = []ms.Status{ms.Commissioning, ms.Deploying, ms.DiskErasing, ms.Testing}

// linkable are those in which interfaces are linked (api/interfaces.py, ALLOWED_STATES).
var linkable = []ms.Status{ms.New, ms.Ready, ms.FailedTesting, ms.Allocated, ms.Broken}

// serieses are those whose images the region has.
var serieses = []string{"focal", "jammy", "noble"}

// permission of an operation (permissions.py, NodePermission).
type permission int

const (
	view permission = iota
	edit
	admin
)

// permissions of the operations (api/machines.py and api/nodes.py, the perm of each get_node_or_404). Any other views.
var permissions = map[string]permission{
	"POST commission": admin, "POST deploy": edit, "POST release": edit, "POST abort": edit,
	"POST set_storage_layout":       admin,
	"POST set_workload_annotations": edit, "POST mark_broken": edit, "POST mark_fixed": admin,
	"POST override_failed_testing": admin,
	"POST rescue_mode":             admin, "POST exit_rescue_mode": admin, "POST power_on": edit, "POST power_off": edit,
	"DELETE machine": admin,
	// api/interfaces.py, InterfaceHandler.link_subnet: of a machine, only an administrator changes interfaces.
	"POST link_subnet": admin,
}

// permitted is models/node.py, get_node_or_404, with auth/local.py, has_perm: no user changes a locked machine, an
// administrator changes all others, and other users only their own and those without an owner. The refusal has no
// further text.
func (r *Region) permitted(op string, m *Machine) bool {
	switch p := permissions[op]; {
	case p == view:
		return true
	case m.Locked:
		return false
	case p == admin:
		return !r.cfg.NotAdmin
	}
	return !r.cfg.NotAdmin || m.Owner == "" || m.Owner == User
}

// lawful returns the refusal of an operation by the machine's status or owner.
func (r *Region) lawful(c query, m *Machine) answer {
	row, _ := ms.Of(m.Status)
	in := func(list []ms.Status, status int, format string, args ...any) answer {
		if slices.Contains(list, m.Status) {
			return answer{}
		}
		return refuse(status, format, args...)
	}
	switch c.op {
	case "POST commission": // forms/ephemeral.py, ScriptForm.clean: an invalid form is 400
		return in(commissionable, http.StatusBadRequest,
			`{"__all__": ["Commission is not available because of the current state of the node."]}`)
	case "POST allocate": // models/node.py, get_available_machines_for_acquisition
		if m.Locked || m.Status != ms.Ready {
			return refuse(http.StatusConflict, "No machine with system ID %s available.", m.SystemID)
		}
	// api/machines.py, MachineHandler.deploy: an administrator deploys machines that others have allocated
	case "POST deploy":
		switch series := c.form.Get("distro_series"); {
		case m.Status == ms.Ready && m.Owner != "" && m.Owner != User:
			return refuse(http.StatusConflict, "Can't allocate a machine belonging to another user.")
		case series != "" && !slices.Contains(serieses, series): // forms/__init__.py, MachineForm.set_distro_series
			return refuse(http.StatusBadRequest,
				`{"distro_series": ["'%s' is not a valid distro_series.  It should be one of: '', %s."]}`, series, serieses)
		case slices.Contains([]ms.Status{ms.Ready, ms.Allocated}, m.Status) && !m.addressed():
			// models/node.py, Node.start: it would have no address
			return refuse(http.StatusBadRequest, `{"network": ["Node has no address family in common with the server"]}`)
		}
		return in([]ms.Status{ms.Ready, ms.Allocated}, http.StatusConflict,
			"Can't deploy a machine that is in the '%s' state", row.Name)
	case "POST release":
		return in(append([]ms.Status{ms.Ready, ms.Releasing}, releasable...), http.StatusConflict,
			"Machine cannot be released in its current state ('%s').", row.Name)
	case "POST abort":
		return in(abortable, http.StatusConflict, "Cannot abort in current state: node %s is in state %s.", m.SystemID,
			row.Name)
	case "POST set_storage_layout": // api/machines.py, set_storage_layout
		return in([]ms.Status{ms.Ready}, http.StatusConflict,
			"Cannot change the storage layout on a machine that is not Ready.")
	case "POST link_subnet":
		return in(linkable, http.StatusConflict,
			"Cannot link interface because the machine is not New, Ready, Allocated, or Broken.")
	case "POST set_workload_annotations": // api/nodes.py, WorkloadAnnotationsMixin.set_workload_annotations
		if m.Owner != User {
			return refuse(http.StatusConflict, "Cannot set workload annotation: it hasn't been acquired.")
		}
	case "POST mark_broken": // api/machines.py, mark_broken: not even an administrator marks the machine of another user
		if m.Owner != User {
			return refuse(http.StatusForbidden, "")
		}
		return in(append(before(ms.Broken), ms.Broken), http.StatusConflict, "Invalid transition: %s -> Broken.", row.Name)
	case "POST mark_fixed": // models/node.py, Node.mark_fixed
		return in([]ms.Status{ms.Broken}, http.StatusConflict, "Can't mark a non-broken node as 'Ready'.")
	case "POST override_failed_testing": // models/node.py, Node.override_failed_testing
		return in([]ms.Status{ms.FailedTesting}, http.StatusConflict,
			"Unable to override node status. Node is not in 'Failed testing' status.")
	case "POST rescue_mode":
		return in(before(ms.EnteringRescueMode), http.StatusConflict, "Invalid transition: %s -> Entering rescue mode.",
			row.Name)
	case "POST exit_rescue_mode":
		return in(before(ms.ExitingRescueMode), http.StatusConflict, "Invalid transition: %s -> Exiting rescue mode.",
			row.Name)
	case "POST power_on": // api/nodes.py, PowerMixin.power_on
		if m.Owner == "" {
			return refuse(http.StatusConflict, "Can't start node: it hasn't been allocated.")
		}
	}
	return answer{}
}

// erasing is what models/node.py, Node.start_releasing, and forms/ephemeral.py, ReleaseForm.clean, make of a request.
// The region's own setting adds a second "wipe-disks" to one that was asked for, and its methods replace those of the
// request: with two scripts the status is Releasing, and never Disk erasing.
func (r *Region) erasing(c query) (scripts []string, secure, quick bool) {
	secure, quick = isTrue(c.form.Get("secure_erase")), isTrue(c.form.Get("quick_erase"))
	if isTrue(c.form.Get("erase")) || secure || quick {
		scripts = append(scripts, "wipe-disks")
	}
	if r.cfg.EraseOnRelease {
		scripts, secure, quick = append(scripts, "wipe-disks"), !r.cfg.NoSecureErase, r.cfg.QuickErase
	}
	return scripts, secure, quick
}

// config is what api/maas.py, get_config, answers of the settings that matter here; by default MAAS erases nothing by
// itself, and securely where it does (models/config.py).
func (r *Region) config(name string) answer {
	values := map[string]bool{
		"enable_disk_erasing_on_release": r.cfg.EraseOnRelease, "disk_erase_with_secure_erase": !r.cfg.NoSecureErase,
		"disk_erase_with_quick_erase": r.cfg.QuickErase,
	}
	v, ok := values[name]
	if !ok {
		return refuse(http.StatusBadRequest, `{"%s": ["%s is not a valid config setting."]}`, name, name)
	}
	return answer{status: http.StatusOK, body: v}
}
