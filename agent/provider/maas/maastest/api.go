package maastest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// query is a request, taken apart.
type query struct {
	op, systemID string
	nic          int
	form         url.Values
}

// parse returns the query of a request. Paths are those of MAAS's API documentation, with their slash at the end.
func parse(q *http.Request) query {
	path, ok := strings.CutPrefix(q.URL.Path, "/MAAS/api/2.0/")
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	op := q.URL.Query().Get("op")
	c := query{form: q.Form, op: q.Method + " " + parts[0]}
	switch {
	case !ok || !strings.HasSuffix(path, "/"):
		c.op = "none"
	case parts[0] == "machines" && len(parts) == 2:
		c.systemID = parts[1]
		c.op = q.Method + " machine"
		if op != "" {
			c.op = q.Method + " " + op
		}
	case (parts[0] == "machines" || parts[0] == "maas") && op != "":
		c.op = q.Method + " " + op
	case parts[0] == "nodes" && len(parts) == 4 && parts[2] == "interfaces":
		c.systemID, c.op = parts[1], q.Method+" "+op
		c.nic, _ = strconv.Atoi(parts[3]) // 0 is no interface
	}
	return c
}

func refuse(status int, format string, args ...any) answer {
	return answer{status: status, body: fmt.Sprintf(format, args...)}
}

func write(w http.ResponseWriter, a answer) {
	if text, ok := a.body.(string); ok {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(a.status)
		_, _ = fmt.Fprint(w, text) // the client may be gone
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(a.status)
	if a.status != http.StatusNoContent {
		_ = json.NewEncoder(w).Encode(a.body) // likewise
	}
}

// handle answers as MAAS would. The caller holds the lock.
func (r *Region) handle(c query) answer {
	switch c.op {
	case "GET users":
		return answer{status: 200, body: map[string]any{"username": User, "is_superuser": !r.cfg.NotAdmin}}
	case "GET version":
		return answer{status: 200, body: map[string]any{"version": "3.6.0", "subversion": "",
			"capabilities": []string{"storage-deployment-ubuntu"}}}
	case "GET machines":
		return answer{status: 200, body: r.list(c.form)}
	case "GET events":
		return r.eventsOf(c.form)
	case "GET get_config":
		return r.config(c.form.Get("name"))
	case "POST machines":
		return r.created(c.form)
	case "POST allocate":
		c.systemID = c.form.Get("system_id")
	}
	m := r.find(c.systemID)
	if m == nil {
		return refuse(http.StatusNotFound, "No Machine matches the given query.")
	}
	return r.onMachine(c, m)
}

func (r *Region) list(form url.Values) []any {
	out := []any{}
	want := lower(form["mac_address"])
	for _, m := range r.machines {
		if slices.ContainsFunc(append(slices.Clone(m.MACs), m.Fabric...),
			func(mac string) bool { return slices.Contains(want, mac) }) {
			r.settle(m)
			out = append(out, r.json(m))
		}
	}
	return out
}

func (r *Region) created(form url.Values) answer {
	macs := lower(form["mac_addresses"])
	for _, m := range r.machines {
		if slices.ContainsFunc(m.MACs, func(mac string) bool { return slices.Contains(macs, mac) }) {
			return refuse(http.StatusBadRequest, `{"mac_addresses": ["MAC address is already in use."]}`)
		}
	}
	if len(macs) == 0 || form.Get("architecture") == "" {
		return refuse(http.StatusBadRequest, `{"architecture": ["This field is required."]}`)
	}
	m := r.add(&Machine{
		Hostname: form.Get("hostname"), MACs: macs, PowerType: form.Get("power_type"), BootMode: "link_up",
		Uncommissioned: true,
	})
	// MachinesHandler.create: what an administrator adds is commissioned at once, unless that is declined.
	if c := form.Get("commission"); !r.cfg.NotAdmin && (c == "" || isTrue(c)) {
		r.commission(m)
	}
	return answer{status: 200, body: r.json(m), acted: true}
}

func (r *Region) onMachine(c query, m *Machine) answer {
	if !r.permitted(c.op, m) {
		return refuse(http.StatusForbidden, "") // middleware.py: PermissionDenied has no text
	}
	if a := r.lawful(c, m); a.status != 0 {
		return a
	}
	switch c.op {
	case "GET machine":
		return answer{status: 200, body: r.json(m)}
	case "GET query_power_state":
		return answer{status: 200, body: map[string]any{"state": powerOf(m)}}
	case "DELETE machine": // MAAS deletes a machine in any status, and in use
		r.drop(m.SystemID)
		return answer{status: http.StatusNoContent, acted: true}
	}
	acted := c.op != "POST release" || m.Status != ms.Ready && m.Status != ms.Releasing
	if a := r.change(c, m); a.status != 0 {
		return a
	}
	return answer{status: 200, body: r.json(m), acted: acted}
}

func powerOf(m *Machine) string {
	if m.PowerType == "manual" {
		return "unknown"
	}
	return m.Power
}

// change has the effect of an operation; an answer with a status is a refusal.
func (r *Region) change(c query, m *Machine) answer {
	comment := c.form.Get("comment")
	switch c.op {
	case "POST commission":
		r.commission(m)
	case "POST allocate":
		r.acquire(m, comment)
	case "POST deploy":
		r.deploy(m, c.form.Get("distro_series"), comment, isTrue(c.form.Get("enable_hw_sync")))
	case "POST release":
		if m.Status != ms.Ready && m.Status != ms.Releasing {
			r.release(c, m)
		}
	case "POST abort":
		r.abort(m, comment)
	case "POST mark_broken":
		r.markBroken(m, comment)
	case "POST mark_fixed":
		r.markFixed(m, comment)
	case "POST override_failed_testing":
		r.override(m, comment)
	case "POST rescue_mode":
		r.rescue(m, true)
	case "POST exit_rescue_mode":
		r.rescue(m, false)
	case "POST power_on", "POST power_off":
		if c.op == "POST power_on" && m.Status == ms.Allocated {
			// models/node.py, Node.start: an allocated machine that is switched on is deployed.
			r.deploy(m, c.form.Get("distro_series"), comment, false)
			return answer{}
		}
		if !m.Stuck && !m.NoSwitch && m.PowerType != "manual" {
			m.Power = strings.TrimPrefix(c.op, "POST power_")
		}
	default:
		return r.configure(c, m)
	}
	return answer{}
}

func (r *Region) configure(c query, m *Machine) answer {
	switch c.op {
	case "POST set_storage_layout":
		if m.NoBootDisk {
			return refuse(http.StatusBadRequest, "Machine is missing a boot disk; no storage layout can be applied.")
		}
		m.Layout = c.form.Get("storage_layout")
	case "POST set_workload_annotations":
		if m.Annotations == nil {
			m.Annotations = map[string]string{}
		}
		for k, v := range c.form {
			switch {
			case k == "op":
			case v[0] == "":
				delete(m.Annotations, k)
			default:
				m.Annotations[k] = v[0]
			}
		}
	case "POST link_subnet":
		switch {
		case c.form.Get("mode") != "AUTO" || c.form.Get("subnet") != strconv.Itoa(m.Subnet):
			return refuse(http.StatusBadRequest, `{"subnet": ["Select a valid choice."]}`)
		case c.nic == 1:
			m.BootMode = "auto"
		default:
			m.FabricMode = "auto"
		}
	default:
		return refuse(http.StatusBadRequest, "Unrecognised signature: %s", c.op)
	}
	return answer{}
}

func isTrue(s string) bool { return s == "true" || s == "True" || s == "1" }

// json is a machine as MAAS shows it.
func (r *Region) json(m *Machine) map[string]any {
	row, _ := ms.Of(m.Status)
	out := map[string]any{
		"system_id": m.SystemID, "hostname": m.Hostname, "owner": m.Owner, "status": int(m.Status), "status_name": row.Name,
		"status_message": r.statusMessage(m), "power_state": m.Power, "power_type": m.PowerType, "locked": m.Locked,
		"osystem":       "",
		"distro_series": m.Series, "workload_annotations": m.Annotations, "cpu_count": m.CPUs, "memory": m.MemoryMiB,
		"hardware_info": map[string]string{"system_serial": orUnknown(m.Serial)}, "enable_hw_sync": m.HWSync,
		"sync_interval": 900,
		"interface_set": r.nics(m), "resource_uri": "/MAAS/api/2.0/machines/" + m.SystemID + "/",
	}
	if m.Series != "" {
		out["osystem"] = "ubuntu"
	}
	if m.HWSync && !m.SyncDead {
		out["last_sync"] = r.cfg.Clock.Now().UTC().Format("2006-01-02T15:04:05.000")
		out["next_sync"] = r.cfg.Clock.Now().Add(15 * time.Minute).UTC().Format("2006-01-02T15:04:05.000")
	}
	if !m.NoBootNIC {
		out["boot_interface"] = r.nics(m)[0]
	}
	if m.NoBootDisk {
		return out
	}
	disk := map[string]any{"id": 1, "name": "nvme0n1", "serial": m.DiskSerial, "size": 512 << 30, "partitions": []any{}}
	switch m.Layout {
	case "flat", "lvm":
		disk["partitions"] = []any{map[string]any{"id": 1}}
	}
	if m.Layout == "lvm" {
		out["volume_groups"] = []any{map[string]any{"id": 1, "system_id": m.SystemID}}
	}
	out["boot_disk"], out["physicalblockdevice_set"] = disk, []any{disk}
	return out
}

func orUnknown(s string) string {
	if s == "" {
		return "Unknown"
	}
	return s
}

func (r *Region) nics(m *Machine) []any {
	out := []any{}
	add := func(mac, mode string, tags []string) {
		id := len(out) + 1
		nic := map[string]any{"id": id, "name": fmt.Sprintf("eth%d", id-1), "mac_address": mac, "tags": tags,
			"links": []any{}}
		if mode != "" {
			nic["links"] = []any{map[string]any{"id": 10 + id, "mode": mode, "subnet": map[string]any{"id": m.Subnet}}}
		}
		out = append(out, nic)
	}
	for i, mac := range m.MACs {
		mode := "link_up"
		if i == 0 {
			mode = m.BootMode
		}
		add(mac, mode, []string{})
	}
	for _, mac := range m.Fabric {
		add(mac, m.FabricMode, []string{"roce"})
	}
	return out
}
