package agent_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/agenttest"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/session"
	"github.com/ingot-metal/ingot/agent/site/installerenrol"
	"github.com/ingot-metal/ingot/agent/site/sitetest"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/testkit"
)

const (
	cardOne   = "52:54:00:00:00:01"
	bootToken = "Zm9v-token-1"
	siteBase  = "http://10.7.0.1:8080"
	patience  = 20 * time.Second
)

// servingSite is a site agent that serves br0 of this namespace.
func servingSite(t *testing.T, hooks agenttest.Hooks) *rig {
	t.Helper()
	sitetest.Bridge(t, "br0", "10.7.0.1/24")
	c := agenttest.New(t, hooks)
	c.Role = agent.RoleSite
	r := newRigOn(t, c, "")
	own, err := sim.OpenWorld(sim.WorldConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	r.cfg.Host, r.cfg.Role = agent.SimulatedHost(own, "site-machine", time.Second), agent.RoleSite
	r.cfg.Site = &agent.SiteConfig{Interfaces: []string{"br0"}, CacheDir: t.TempDir(), CacheBytes: 1 << 30,
		BMCPoll: time.Second}
	return r
}

// installDocument has one segment and one machine that is to boot the installer.
func installDocument(c *agenttest.Controller, kernel, initrd, image string) *fleetv1.SiteDocument {
	return &fleetv1.SiteDocument{
		Revision: 7, Site: "here", ControllerAddresses: []string{c.FleetAddr},
		Segments: []*fleetv1.Segment{{
			Name: "rack1", Interface: "br0", Address: "10.7.0.1/24", PoolStart: "10.7.0.50", PoolEnd: "10.7.0.59",
			LeaseSeconds: 600,
		}, {Name: "elsewhere", Interface: "eth9", Address: "10.8.0.1/24"}},
		Installers: []*fleetv1.InstallerFiles{{Arch: "amd64", KernelSha256: kernel, InitrdSha256: initrd,
			Cmdline: "console=ttyS0"}},
		Assignments: []*fleetv1.BootAssignment{{
			MachineId: "m-1", MacAddresses: []string{cardOne}, Mode: "installer", OperationId: "op-1", Token: bootToken,
			Hostname: "one", PrefetchSha256: []string{image},
		}},
	}
}

func flipped(doc *fleetv1.SiteDocument) *fleetv1.SiteDocument {
	return &fleetv1.SiteDocument{
		Revision: doc.GetRevision() + 1, Site: doc.GetSite(), Segments: doc.GetSegments(), Installers: doc.GetInstallers(),
		ControllerAddresses: doc.GetControllerAddresses(),
		Assignments:         []*fleetv1.BootAssignment{{MachineId: "m-1", MacAddresses: []string{cardOne}, Mode: "disk"}},
	}
}

func (r *rig) waitApplied(revision int64) {
	r.t.Helper()
	r.c.Wait(fmt.Sprintf("revision %d", revision), func() bool {
		all := r.c.Syncs()
		return len(all) > 0 && all[len(all)-1].GetAppliedRevision() == revision
	})
}

// lease gets the machine an address with busybox's client.
func lease(t *testing.T, m *sitetest.Machine) {
	t.Helper()
	script := filepath.Join(t.TempDir(), "script")
	text := "#!/bin/sh\n[ \"$1\" = bound ] && ip addr add $ip/$mask dev $interface\nexit 0\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	m.Run("busybox udhcpc -i eth0 -n -q -f -t 10 -T 1 -s " + script)
}

// enrolBody is a request to the desk in a file.
func enrolBody(t *testing.T, mac string) string {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.NewCSR(key, "")
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(installerenrol.Request{CSR: csr, MAC: mac, BootID: "boot-1"})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "enrol.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// httpStatus returns the status that curl prints for a request; args go before the URL.
func httpStatus(m *sitetest.Machine, args, url string) string {
	return m.Run("curl -s -o /dev/null -w %{http_code} " + args + " " + url)
}

func TestASiteServesAMachineFromPowerOnToDisk(t *testing.T) {
	if !sitetest.InNamespace(t) {
		return
	}
	r := servingSite(t, agenttest.Hooks{})
	kernel, initrd, image := bytes.Repeat([]byte("kernel"), 50_000), bytes.Repeat([]byte("initrd"), 70_000),
		bytes.Repeat([]byte("image"), 900_000)
	imageSum := r.c.AddBlob(image)
	doc := installDocument(r.c, r.c.AddBlob(kernel), r.c.AddBlob(initrd), imageSum)
	r.c.SetDocument(doc)
	r.start()
	r.waitApplied(7)
	m := sitetest.NewMachine(t, "br0", cardOne)
	lease(t, m)

	script := m.Run("curl -sf " + siteBase + "/boot/auto.ipxe?mac=" + cardOne + "&arch=x86_64")
	for _, want := range []string{
		"#!ipxe\n", "kernel " + siteBase + "/boot/" + bootToken + "/kernel", " initrd=initrd ", "ingot.site=" + siteBase,
		"ingot.token=" + bootToken, "ingot.role=installer", "console=ttyS0",
	} {
		if !strings.Contains(script, want) {
			t.Errorf("the script has no %q:\n%s", want, script)
		}
	}
	for file, want := range map[string][]byte{"kernel": kernel, "initrd": initrd} {
		if got := m.Run("curl -sf " + siteBase + "/boot/" + bootToken + "/" + file); got != string(want) {
			t.Errorf("%s: %d bytes, want %d", file, len(got), len(want))
		}
	}
	if got := m.Run("curl -sf -r 100-299 " + siteBase + "/blob/" + imageSum); got != string(image[100:300]) {
		t.Errorf("a range of the image has %d bytes", len(got))
	}
	enrolFromTheMachine(t, r, m)
	for to, want := range map[string]string{r.c.FleetAddr: "200", "10.7.0.1:8080": "403", "localhost:22": "403"} {
		// curl has no certificate, so behind the proxy it gets no further.
		got, _ := m.Try(t.Context(), "curl -s -o /dev/null -w %{http_connect} -k -p -x "+siteBase+" https://"+to)
		if got != want {
			t.Errorf("CONNECT %s: %s, want %s", to, got, want)
		}
	}

	r.c.SetDocument(flipped(doc))
	r.waitApplied(8)
	if got := httpStatus(m, "", siteBase+"/boot/"+bootToken+"/kernel"); got != "410" {
		t.Errorf("the kernel of a dead token: %s", got)
	}
	if got := httpStatus(m, "", siteBase+"/blob/"+imageSum); got != "404" {
		t.Errorf("an image that nobody needs: %s", got)
	}
	if got := httpStatus(m, "-d @"+enrolBody(t, cardOne), siteBase+"/boot/"+bootToken+"/enrol"); got != "410" {
		t.Errorf("the desk with a dead token: %s", got)
	}
	if got := m.Run("curl -sf " + siteBase + "/boot/auto.ipxe?mac=" + cardOne); !strings.HasSuffix(got, "exit 1\n") ||
		strings.Contains(got, "kernel") {
		t.Errorf("the script of a machine that boots from its disk:\n%s", got)
	}
	if n := len(r.c.Fetches()); n != 3 {
		t.Errorf("%d fetches of 3 blobs", n)
	}
	wantReports(t, r)
}

func enrolFromTheMachine(t *testing.T, r *rig, m *sitetest.Machine) {
	t.Helper()
	url := siteBase + "/boot/" + bootToken + "/enrol"
	var a installerenrol.Answer
	if err := json.Unmarshal([]byte(m.Run("curl -sf -d @"+enrolBody(t, cardOne)+" "+url)), &a); err != nil {
		t.Fatal(err)
	}
	if a.MachineID != "m-1" || a.OperationID != "op-1" || a.Proxy != siteBase || len(a.FleetAddresses) != 1 ||
		a.Mode != "installer" {
		t.Errorf("the desk answers %+v", a)
	}
	v := r.c.Vouched()
	if len(v) != 1 || v[0].GetBootToken() != bootToken || v[0].GetMacAddress() != cardOne ||
		!strings.HasPrefix(v[0].GetAddress(), "10.7.0.5") {
		t.Errorf("the controller was asked %v", v)
	}
	other := "52:54:00:00:00:02"
	if got := httpStatus(m, "-d @"+enrolBody(t, other), url); got != "403" {
		t.Errorf("another machine's card: %s", got)
	}
	m.Run("ip addr add 10.7.0.200/24 dev eth0")
	if got := httpStatus(m, "--interface 10.7.0.200 -d @"+enrolBody(t, cardOne), url); got != "403" {
		t.Errorf("from an address that nobody lent: %s", got)
	}
	if n := len(r.c.Vouched()); n != 1 {
		t.Errorf("the controller was asked %d times", n)
	}
}

// wantReports holds that lease and segments have gone up.
func wantReports(t *testing.T, r *rig) {
	t.Helper()
	r.c.Wait("the lease at the controller", func() bool {
		for _, s := range r.c.Syncs() {
			for _, l := range s.GetLeases() {
				if l.GetMacAddress() == cardOne && l.GetSegment() == "rack1" {
					return true
				}
			}
		}
		return false
	})
	r.c.Wait("the segments at the controller", func() bool {
		state := map[string]string{}
		for _, s := range r.c.Syncs() {
			for _, o := range s.GetSegments() {
				state[o.GetSegment()] = o.GetState()
			}
		}
		return state["rack1"] == "up" && strings.Contains(state["elsewhere"], "site.interfaces")
	})
	if got := r.c.Syncs()[len(r.c.Syncs())-1].GetBootAddresses()["rack1"]; got != "10.7.0.1:8080" {
		t.Errorf("boot address %q", got)
	}
}

func TestASiteServesOnWithoutItsController(t *testing.T) {
	if !sitetest.InNamespace(t) {
		return
	}
	r := servingSite(t, agenttest.Hooks{})
	kernel := bytes.Repeat([]byte("kernel"), 50_000)
	doc := installDocument(r.c, r.c.AddBlob(kernel), r.c.AddBlob([]byte("initrd")), r.c.AddBlob([]byte("image")))
	r.c.SetDocument(doc)
	r.start()
	r.waitApplied(7)
	r.c.Wait("the files at the site", func() bool { return len(r.c.Fetches()) == 3 })
	m := sitetest.NewMachine(t, "br0", cardOne)
	lease(t, m)
	address := m.Addresses()
	r.blockNew.Store(true)
	r.restart()
	testkit.Eventually(t, patience, func() bool {
		// Until the agent listens again, curl cannot connect.
		got, err := m.Try(t.Context(), "curl -s -o /dev/null -w %{http_code} "+siteBase+"/boot/"+bootToken+"/kernel")
		return err == nil && got == "200"
	}, "nothing is served")
	if got := m.Run("curl -sf " + siteBase + "/boot/" + bootToken + "/kernel"); got != string(kernel) {
		t.Errorf("a kernel of %d bytes", len(got))
	}
	if got := httpStatus(m, "-m 30 -d @"+enrolBody(t, cardOne), siteBase+"/boot/"+bootToken+"/enrol"); got != "503" {
		t.Errorf("the desk without a controller: %s", got)
	}
	m.Run("ip addr flush dev eth0")
	lease(t, m)
	if got := m.Addresses(); fmt.Sprint(got) != fmt.Sprint(address) {
		t.Errorf("address %v after the restart, %v before", got, address)
	}
	r.blockNew.Store(false)
	r.c.SetDocument(flipped(doc))
	r.waitApplied(8)
}

func TestASupersededSiteServesOnAndGivesNoOrders(t *testing.T) {
	if !sitetest.InNamespace(t) {
		return
	}
	r := servingSite(t, agenttest.Hooks{})
	doc := installDocument(r.c, r.c.AddBlob([]byte("kernel")), r.c.AddBlob([]byte("initrd")), r.c.AddBlob([]byte("image")))
	r.c.SetDocument(doc)
	r.start()
	r.waitApplied(7)
	r.c.Wait("the files at the site", func() bool { return len(r.c.Fetches()) == 3 })
	s := r.c.Session()
	s.Send(
		&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Superseded{
			Superseded: &fleetv1.Superseded{ByEpoch: 99}}})
	r.c.Wait("the confirmation", func() bool { return s.Confirmed() != nil })
	m := sitetest.NewMachine(t, "br0", cardOne)
	lease(t, m)
	if got := httpStatus(m, "", siteBase+"/boot/"+bootToken+"/kernel"); got != "200" {
		t.Errorf("the kernel: %s", got)
	}
	if got := httpStatus(m, "-m 30 -d @"+enrolBody(t, cardOne), siteBase+"/boot/"+bootToken+"/enrol"); got != "503" {
		t.Errorf("the desk: %s", got)
	}
	if n := r.c.Sessions(); n != 1 {
		t.Errorf("%d sessions: it came back", n)
	}
	r.stop()
	if err := r.end(); !errors.Is(err, session.ErrSuperseded) {
		t.Errorf("it ended with %v", err)
	}
}

// segmentState is the last word of a segment at the controller.
func (r *rig) segmentState(name string) string {
	state := ""
	for _, s := range r.c.Syncs() {
		for _, o := range s.GetSegments() {
			if o.GetSegment() == name {
				state = o.GetState()
			}
		}
	}
	return state
}

func TestSegmentsComeAndGoWithoutTheOthers(t *testing.T) {
	if !sitetest.InNamespace(t) {
		return
	}
	r := servingSite(t, agenttest.Hooks{})
	r.cfg.Site.Interfaces = []string{"br0", "br1"}
	doc := installDocument(r.c, r.c.AddBlob([]byte("kernel")), r.c.AddBlob([]byte("initrd")), r.c.AddBlob([]byte("image")))
	doc.Segments[1] = &fleetv1.Segment{Name: "rack2", Interface: "br1", Address: "10.8.0.1/24", PoolStart: "10.8.0.50",
		PoolEnd: "10.8.0.59"}
	r.c.SetDocument(doc)
	r.start()
	r.waitApplied(7) // although rack2 has no device yet
	r.c.Wait("rack2 to be down", func() bool { return strings.Contains(r.segmentState("rack2"), "br1") })
	m := sitetest.NewMachine(t, "br0", cardOne)
	lease(t, m)

	// A connection through rack1 that must outlive what happens to rack2.
	held := m.Start("busybox nc 10.7.0.1 8080")
	sitetest.Bridge(t, "br1", "10.8.0.1/24")
	r.c.Wait("rack2 to be up", func() bool { return r.segmentState("rack2") == "up" })
	n := sitetest.NewMachine(t, "br1", "52:54:00:00:00:09")
	lease(t, n)
	if got := httpStatus(n, "", "http://10.8.0.1:8080/boot/"+bootToken+"/kernel"); got != "200" {
		t.Errorf("rack2 gives %s", got)
	}
	without := flipped(doc)
	without.Segments = doc.GetSegments()[:1]
	r.c.SetDocument(without)
	r.waitApplied(8)
	if got, err := n.Try(t.Context(), "curl -s -m 5 http://10.8.0.1:8080/"); err == nil {
		t.Errorf("a segment that is gone answers %q", got)
	}
	if got := httpStatus(m, "", siteBase+"/boot/self"); got != "200" {
		t.Errorf("rack1 gives %s", got)
	}
	if held.String() != "" {
		t.Errorf("a connection of rack1 was ended: %q", held)
	}
	r.c.Wait("the unknown machine at the controller", func() bool {
		for _, s := range r.c.Syncs() {
			for _, u := range s.GetUnknown() {
				if u.GetMacAddress() == "52:54:00:00:00:09" && u.GetSegment() == "rack2" {
					return true
				}
			}
		}
		return false
	})
}
