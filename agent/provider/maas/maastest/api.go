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

// parse names what is asked for. Paths are those of MAAS's API documentation, with their slash at the end.
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
	case parts[0] == "machines" && op != "":
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
		return answer{status: 200, body: map[string]any{"username": "ingot", "is_superuser": true}}
	case "GET version":
		return answer{status: 200, body: map[string]any{"version": "3.6.0", "subversion": "", "capabilities": []string{"storage-deployment-ubuntu"}}}
	case "GET machines":
		return answer{status: 200, body: r.list(c.form)}
	case "GET events":
		return answer{status: 200, body: r.eventsOf(c.form)}
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
		if slices.ContainsFunc(append(slices.Clone(m.MACs), m.Fabric...), func(mac string) bool { return slices.Contains(want, mac) }) {
			r.settle(m)
			out = append(out, r.json(m))
		}
	}
	return out
}

func (r *Region) eventsOf(form url.Values) any {
	limit, _ := strconv.Atoi(form.Get("limit")) // none: nothing
	out := []any{}
	for _, e := range slices.Backward(r.events) {
		if e.systemID == form.Get("id") && len(out) < limit {
			out = append(out, map[string]any{"id": e.id, "node": e.systemID, "type": "Node changed status", "description": e.description, "level": "DEBUG"})
		}
	}
	return map[string]any{"count": len(out), "events": out, "next_uri": "", "prev_uri": ""}
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
	m := r.add(&Machine{Hostname: form.Get("hostname"), MACs: macs, PowerType: form.Get("power_type"), BootMode: "link_up"})
	return answer{status: 200, body: r.json(m), acted: true}
}

// allowed says from which statuses an operation is taken; any other is 409.
var allowed = map[string][]ms.Status{
	"POST commission": {ms.New, ms.FailedCommissioning, ms.Ready, ms.FailedTesting, ms.Broken},
	"POST allocate":   {ms.Ready},
	"POST deploy":     {ms.Ready, ms.Allocated},
	"POST release": {
		ms.Ready, ms.Releasing, ms.Allocated, ms.Reserved, ms.Broken, ms.Deploying, ms.Deployed, ms.FailedDeployment, ms.FailedDiskErasing,
		ms.FailedReleasing,
	},
	"POST abort":                    {ms.Commissioning, ms.Deploying, ms.DiskErasing, ms.Testing, ms.EnteringRescueMode, ms.ExitingRescueMode},
	"POST set_storage_layout":       {ms.Ready, ms.Allocated},
	"POST link_subnet":              {ms.Ready, ms.Allocated, ms.Broken},
	"POST set_workload_annotations": {ms.Allocated, ms.Deploying, ms.Deployed, ms.FailedDeployment},
	"POST mark_fixed":               {ms.Broken},
	"POST rescue_mode":              {ms.Ready, ms.Broken, ms.Deployed, ms.FailedEnteringRescueMode},
	"POST exit_rescue_mode":         {ms.RescueMode, ms.FailedEnteringRescueMode, ms.FailedExitingRescueMode},
}

func (r *Region) onMachine(c query, m *Machine) answer {
	if list, limited := allowed[c.op]; limited && !slices.Contains(list, m.Status) {
		row, _ := ms.Of(m.Status)
		return refuse(http.StatusConflict, "%s is not possible: the machine is %s", c.op, row.Name)
	}
	switch c.op {
	case "GET machine":
		return answer{status: 200, body: r.json(m)}
	case "GET query_power_state":
		return answer{status: 200, body: map[string]any{"state": powerOf(m)}}
	case "DELETE machine":
		if m.Locked {
			return refuse(http.StatusConflict, "the machine is locked")
		}
		r.drop(m.SystemID)
		return answer{status: http.StatusNoContent, acted: true}
	}
	if m.Locked && c.op == "POST release" {
		return refuse(http.StatusConflict, "the machine is locked")
	}
	if a := r.change(c, m); a.status != 0 {
		return a
	}
	return answer{status: 200, body: r.json(m), acted: true}
}

func powerOf(m *Machine) string {
	if m.PowerType == "manual" {
		return "unknown"
	}
	return m.Power
}

// change has the effect of an operation; an answer with a status is a refusal.
func (r *Region) change(c query, m *Machine) answer {
	switch c.op {
	case "POST commission":
		r.commission(m)
	case "POST allocate":
		r.move(m, ms.Allocated)
		m.Owner = "ingot"
	case "POST deploy":
		if m.Status == ms.Ready {
			r.move(m, ms.Allocated)
			m.Owner = "ingot"
		}
		r.deploy(m, c.form.Get("distro_series"), isTrue(c.form.Get("enable_hw_sync")))
	case "POST release":
		if m.Status != ms.Ready && m.Status != ms.Releasing {
			r.release(m, isTrue(c.form.Get("erase")))
		}
	case "POST abort":
		r.abort(m)
	case "POST mark_broken":
		m.before = m.Status
		r.move(m, ms.Broken)
	case "POST mark_fixed":
		r.move(m, ms.Ready)
	case "POST rescue_mode":
		r.rescue(m, true)
	case "POST exit_rescue_mode":
		r.rescue(m, false)
	case "POST power_on", "POST power_off":
		want := strings.TrimPrefix(c.op, "POST power_")
		if !m.Stuck && !m.NoSwitch {
			m.Power = want
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
			if k != "op" {
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
		"status_message": m.StatusMessage, "power_state": m.Power, "power_type": m.PowerType, "locked": m.Locked, "osystem": "",
		"distro_series": m.Series, "workload_annotations": m.Annotations, "cpu_count": m.CPUs, "memory": m.MemoryMiB,
		"hardware_info": map[string]string{"system_serial": orUnknown(m.Serial)}, "enable_hw_sync": m.HWSync, "sync_interval": 900,
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
		nic := map[string]any{"id": id, "name": fmt.Sprintf("eth%d", id-1), "mac_address": mac, "tags": tags, "links": []any{}}
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
