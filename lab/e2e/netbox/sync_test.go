//go:build netbox

package netbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/integrations/netbox/netboxtest"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

func TestMain(m *testing.M) { rig.Main(m) }

type object = map[string]any

// box is a NetBox as a client of its API sees it.
type box struct {
	t          *testing.T
	url, token string
	role       string // name of a device's field
	emulated   *netboxtest.Server
}

func (b box) call(method, path string, in object) object {
	b.t.Helper()
	raw, err := json.Marshal(in)
	if err != nil {
		b.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+"/api"+path, bytes.NewReader(raw))
	if err != nil {
		b.t.Fatal(err)
	}
	keyword := "Token "
	if strings.HasPrefix(b.token, "nbt_") {
		keyword = "Bearer "
	}
	req.Header.Set("Authorization", keyword+b.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		b.t.Fatalf("%s %s: %d: %s: %v", method, path, resp.StatusCode, body, err)
	}
	out := object{}
	if len(body) > 0 && method != http.MethodDelete {
		if err := json.Unmarshal(body, &out); err != nil {
			b.t.Fatalf("%s %s: %s: %v", method, path, body, err)
		}
	}
	return out
}

func (b box) post(path string, in object) int64 {
	b.t.Helper()
	return int64(b.call(http.MethodPost, path, in)["id"].(float64))
}

func (b box) patch(device int64, in object) {
	b.t.Helper()
	b.call(http.MethodPatch, fmt.Sprintf("/dcim/devices/%d/", device), in)
}

// fields are the custom fields of a device.
func (b box) fields(device int64) object {
	b.t.Helper()
	return b.call(http.MethodGet, fmt.Sprintf("/dcim/devices/%d/", device), nil)["custom_fields"].(object)
}

// interfaces returns MAC addresses by name.
func (b box) interfaces(device int64) map[string]string {
	b.t.Helper()
	out := map[string]string{}
	list := b.call(http.MethodGet, fmt.Sprintf("/dcim/interfaces/?device_id=%d", device), nil)
	for _, i := range list["results"].([]any) {
		mac, _ := i.(object)["mac_address"].(string)
		out[i.(object)["name"].(string)] = strings.ToLower(mac)
	}
	return out
}

// plan has the ids of the objects in NetBox.
type plan struct {
	oslo, bergen, kind, server, aSwitch, rack int64
}

func (b box) furnish() (p plan) {
	b.t.Helper()
	named := func(path, name, slug string) int64 { return b.post(path, object{"name": name, "slug": slug}) }
	p.oslo, p.bergen = named("/dcim/sites/", "Oslo", "oslo"), named("/dcim/sites/", "Bergen", "bergen")
	p.kind = b.post("/dcim/device-types/", object{"manufacturer": named("/dcim/manufacturers/", "Dell", "dell"),
		"model": "PowerEdge R650", "slug": "r650"})
	p.server = b.post("/dcim/device-roles/", object{"name": "Server", "slug": "server", "color": "00ff00"})
	p.aSwitch = b.post("/dcim/device-roles/", object{"name": "Switch", "slug": "switch", "color": "0000ff"})
	p.rack = b.post("/dcim/racks/", object{"name": "R42", "site": p.oslo})
	return p
}

func (b box) device(p plan, name string, more object) int64 {
	b.t.Helper()
	in := object{"name": name, "device_type": p.kind, b.role: p.server, "site": p.oslo, "status": "planned"}
	for k, v := range more {
		in[k] = v
	}
	return b.post("/dcim/devices/", in)
}

// world is a controller and a NetBox.
type world struct {
	box
	c       *harness.ControllerProcess
	program string
	env     []string
}

func newWorld(t *testing.T, b box) *world {
	t.Helper()
	w := &world{box: b, c: harness.NewControllerProcess(t), program: filepath.Join(t.TempDir(), "ingot-netbox-sync")}
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-o", w.program,
		"github.com/ingot-metal/ingot/integrations/netbox/ingot-netbox-sync")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	w.c.Start("")
	w.env = append(os.Environ(), "NETBOX_URL="+b.url, "NETBOX_TOKEN="+b.token, "INGOT_SERVER="+w.c.Front.Address(),
		"INGOT_CA_FILE="+w.c.CAFile(), "INGOT_TOKEN="+w.c.Token())
	return w
}

func (w *world) command(args ...string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.Command(w.program, args...)
	var out bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = w.env, &out, &out
	return cmd, &out
}

// run runs the program, and fails unless it ends with this code.
func (w *world) run(code int, args ...string) string {
	w.t.Helper()
	cmd, out := w.command(append([]string{"--devices", "role=server"}, args...)...)
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) || cmd.ProcessState.ExitCode() != code {
		w.t.Fatalf("%v ended with %v, want %d:\n%s", args, err, code, out)
	}
	return out.String()
}

func (w *world) says(out string, lines ...string) {
	w.t.Helper()
	for _, l := range lines {
		if !strings.Contains(out, l) {
			w.t.Errorf("it does not say %q:\n%s", l, out)
		}
	}
}

// count is how many machines the controller has.
func (w *world) count() int {
	w.t.Helper()
	return len(harness.Must(w.t, w.c.Machines().ListMachines, &baremetalv1.ListMachinesRequest{}).GetMachines())
}

func boxes(t *testing.T) map[string]box {
	t.Helper()
	out := map[string]box{}
	for version, b := range map[string]box{
		"3.1.11": {token: "0123456789abcdef0123456789abcdef01234567", role: "device_role"},
		"4.6.8":  {token: "nbt_abc.secret", role: "role"},
	} {
		s := netboxtest.New(version, b.token)
		t.Cleanup(s.Close)
		b.url, b.emulated = s.URL, s
		out[version] = b
	}
	if url := os.Getenv("INGOT_TEST_NETBOX_URL"); url != "" {
		role := "role"
		if name := os.Getenv("INGOT_TEST_NETBOX_ROLE"); name != "" {
			role = name
		}
		out["real"] = box{url: url, token: os.Getenv("INGOT_TEST_NETBOX_TOKEN"), role: role}
	}
	return out
}

// TestSync plans machines in NetBox, has them made, runs one, and changes either side.
func TestSync(t *testing.T) {
	for name, b := range boxes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b.t = t
			synced(t, newWorld(t, b))
		})
	}
}

func synced(t *testing.T, w *world) {
	p := w.furnish()
	one := w.device(p, "R42-01", object{"rack": p.rack, "position": 1, "face": "front", "asset_tag": "A 1"})
	w.post("/dcim/interfaces/", object{"device": one, "name": "eno1", "type": "other"})
	w.post("/dcim/interfaces/", object{"device": one, "name": "bmc", "type": "other", "mgmt_only": true})
	two := w.device(p, "r42-02", object{"serial": "PLANNED-2"})
	w.device(p, "Größe!", nil)
	w.device(p, "twin", nil)
	w.device(p, "twin", object{"site": p.bergen})
	w.device(p, "sw-1", object{w.role: p.aSwitch})
	for i := range 2 * netboxtest.MaxPageSize { // of several pages
		w.device(p, fmt.Sprintf("old-%02d", i), object{"status": "offline"})
	}
	w.says(w.run(1, "--dry-run"), "--setup")
	w.says(w.run(0, "--setup"), "made 6 custom fields")
	w.says(w.run(0, "--setup"), "made 0 custom fields")

	w.says(
		w.run(3, "--dry-run"),
		"ingot     R42-01 (device ",
		"create: labels.asset-tag=A-1 labels.device-type=PowerEdge-R650 "+
			"labels.position=1 labels.role=server spec.rack=R42 spec.site=oslo",
		"conflict  Größe!",
		"2 devices have this name",
		"2 machines created, 0 updated; 0 changes in NetBox; 3 conflicts",
	)
	if n := w.count(); n != 0 {
		t.Fatalf("the dry run has made %d machines", n)
	}
	w.says(w.run(1, "--max-create", "1"), "2 machines would be created, more than --max-create 1; nothing was written")
	if w.emulated != nil {
		w.emulated.Away(3)
	}
	w.run(3)
	m := w.c.Machine("r42-01")
	if n := w.count(); n != 2 || m.GetSpec().GetSite() != "oslo" || m.GetSpec().GetRack() != "R42" ||
		m.GetLabels()["position"] != "1" || m.GetLabels()["role"] != "server" || m.GetLabels()["asset-tag"] != "A-1" {
		t.Fatalf("%d machines, and this one: %v", n, m)
	}
	if f := w.fields(one); f["ingot_machine"] != "r42-01" || f["ingot_state"] != "NEW" || f["ingot_serial"] != nil {
		t.Errorf("the fields are %v", f)
	}
	still := func() {
		t.Helper()
		was := w.c.Machine("r42-01").GetVersion()
		w.says(w.run(3), "0 machines created, 0 updated; 0 changes in NetBox")
		if now := w.c.Machine("r42-01").GetVersion(); now != was {
			t.Errorf("a run without differences has changed the machine: %d, %d", was, now)
		}
	}
	still()
	observed(t, w, one)
	still()
	contradicted(t, w, one)
	gone(t, w, one, two)
}

// observed: the machine is there, and NetBox learns what it is.
func observed(t *testing.T, w *world, one int64) {
	t.Helper()
	m := w.c.NewMachine(t, harness.MachineOptions{ID: "r42-01"})
	m.WaitConnected()
	testkit.Eventually(t, rig.Soon, func() bool {
		_, err := harness.Call(t, w.c.Machines().GetInventory, &baremetalv1.GetInventoryRequest{MachineId: m.ID})
		return err == nil
	}, "no inventory")
	for _, args := range [][]string{{"enter-maintenance", m.ID}, {"exit-maintenance", m.ID},
		{"reboot", m.ID, "--request-id", "kernel"}} {
		if code, out := w.c.Ingot(args...); code != 0 {
			t.Fatalf("ingot %v: %d: %s", args, code, out)
		}
	}
	op := w.c.OperationsOf(m.ID)[0]
	w.c.Wait(op.GetOperationId(), rig.Soon)
	macs := w.simulated(m.ID)
	w.says(
		w.run(3, "--dry-run"),
		"netbox    R42-01",
		"add interface: sim0 "+macs["sim0"],
		`ingot_serial "" becomes "SIM-r42-01"`,
	)
	w.run(3)
	nics := w.interfaces(one)
	if len(nics) != 4 || nics["sim0"] != macs["sim0"] || nics["sim1"] != macs["sim1"] || nics["eno1"] != "" {
		t.Errorf("the interfaces are %v, the machine's %v", nics, macs)
	}
	f := w.fields(one)
	if f["ingot_serial"] != "SIM-r42-01" || f["ingot_operation"] != "REBOOT SUCCEEDED "+op.GetOperationId() {
		t.Errorf("the fields are %v", f)
	}
}

func (w *world) simulated(id string) map[string]string {
	w.t.Helper()
	doc := harness.Must(w.t, w.c.Machines().GetInventory, &baremetalv1.GetInventoryRequest{MachineId: id}).GetDocument()
	var in struct {
		NICs []struct{ Name, MAC string } `json:"nics"`
	}
	if err := json.Unmarshal(doc, &in); err != nil || len(in.NICs) != 2 {
		w.t.Fatalf("%v: %s", err, doc)
	}
	return map[string]string{in.NICs[0].Name: in.NICs[0].MAC, in.NICs[1].Name: in.NICs[1].MAC}
}

// contradicted: a change by the field's owner is copied; a foreign change is reported and stays.
func contradicted(t *testing.T, w *world, one int64) {
	t.Helper()
	w.patch(one, object{"position": 7})
	w.says(w.run(3), `labels.position "1" becomes "7"`)
	if m := w.c.Machine("r42-01"); m.GetLabels()["position"] != "7" || m.GetSpec().GetRack() != "R42" {
		t.Errorf("the machine is %v", m)
	}
	ingot := func(args ...string) {
		t.Helper()
		if code, out := w.c.Ingot(args...); code != 0 {
			t.Fatalf("ingot %v: %d: %s", args, code, out)
		}
	}
	ingot("machine", "update", "r42-01", "--rack", "elsewhere", "--label", "owner=me")
	w.says(w.run(3), `spec.rack is "R42" in NetBox and "elsewhere" in Ingot`)
	w.patch(one, object{"position": 8})
	w.run(3)
	if m := w.c.Machine("r42-01"); m.GetSpec().GetRack() != "elsewhere" || m.GetLabels()["position"] != "7" {
		t.Errorf("the conflict was overwritten: %v", m)
	}
	ingot("machine", "update", "r42-01", "--rack", "R42", "--label", "position=8")
	if out := w.run(3); strings.Contains(out, "R42-01 (device") && strings.Contains(out, "conflict  R42-01") {
		t.Errorf("the conflict is still there: %s", out)
	}
	w.patch(one, object{"position": 9})
	w.says(w.run(3), `labels.position "8" becomes "9"`)
	if m := w.c.Machine("r42-01"); m.GetLabels()["owner"] != "me" {
		t.Errorf("a label of somebody else's is gone: %v", m)
	}
	w.patch(one, object{"serial": "SN-OTHER"})
	w.says(w.run(3), `serial is "SN-OTHER" in NetBox, and the machine says "SIM-r42-01"`)
	w.patch(one, object{"serial": "sim-R42-01"})
	if out := w.run(3); strings.Contains(out, "serial is") {
		t.Errorf("serial numbers are compared by case: %s", out)
	}
}

// gone: nothing is deleted, and nothing that was deleted comes back.
func gone(t *testing.T, w *world, one, two int64) {
	t.Helper()
	harness.Must(t, w.c.Machines().DeleteMachine, &baremetalv1.DeleteMachineRequest{MachineId: "r42-02"})
	w.says(w.run(3), "r42-02 (device ", "MACHINE_DELETED")
	w.call(http.MethodDelete, fmt.Sprintf("/dcim/devices/%d/", two), nil)
	w.call(http.MethodDelete, fmt.Sprintf("/dcim/devices/%d/", one), nil)
	w.says(w.run(3), fmt.Sprintf("conflict  r42-01: NetBox has no device %d any more", one))
	if m := w.c.Machine("r42-01"); m.GetDeletedAt() != nil {
		t.Errorf("the machine was deleted: %v", m)
	}
}

// TestSyncKilled kills the program in the middle of a pass, again and again; each device is one machine in the end.
func TestSyncKilled(t *testing.T) {
	const devices = 40
	for name, b := range boxes(t) {
		if b.emulated == nil {
			continue // its objects are those of the other test
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b.t = t
			w := newWorld(t, b)
			p := w.furnish()
			w.run(0, "--setup")
			ids := map[string]int64{}
			for i := range devices {
				ids[fmt.Sprintf("k-%02d", i)] = w.device(p, fmt.Sprintf("K-%02d", i), nil)
			}
			for _, at := range []int{1, 12, 30} {
				cmd, out := w.command("--devices", "role=server")
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				testkit.Eventually(t, rig.Soon, func() bool { return w.count() >= at }, "no machines: %s", out)
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = cmd.Wait() // it was killed
			}
			w.says(w.run(0), "0 conflicts")
			w.says(w.run(0), "0 machines created, 0 updated; 0 changes in NetBox; 0 conflicts")
			if n := w.count(); n != devices {
				t.Errorf("%d devices are %d machines", devices, n)
			}
			for id, device := range ids {
				if m := w.c.Machine(id); m.GetSpec().GetExternalId() != fmt.Sprintf("netbox-device-%d", device) ||
					w.fields(device)["ingot_machine"] != id {
					t.Errorf("%s of device %d: %v", id, device, m)
				}
			}
		})
	}
}
