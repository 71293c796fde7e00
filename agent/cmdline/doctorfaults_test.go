package cmdline

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/site/sitetest"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/internal/doctor"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/bmc"
)

// TestDoctorFindsAnotherDHCPServer: dnsmasq assigns addresses on the site's network, and ends.
func TestDoctorFindsAnotherDHCPServer(t *testing.T) {
	if !sitetest.InNamespace(t) {
		return
	}
	sitetest.Bridge(t, "br0", "10.7.0.1/24")
	if f := checkOtherDHCP(t.Context(), "br0", false); f.Level != doctor.OK {
		t.Errorf("an empty network: %+v", f)
	}
	if f := checkOtherDHCP(t.Context(), "br0", true); f.Level != doctor.Fail || f.Remedy == "" {
		t.Errorf("an empty network, where another server should give the addresses: %+v", f)
	}
	other := sitetest.NewMachine(t, "br0", "52:54:00:00:00:99")
	other.Run("ip address add 10.7.0.2/24 dev eth0")
	server := other.Start(
		"dnsmasq --no-daemon --conf-file=/dev/null --port=0 --dhcp-range=10.7.0.200,10.7.0.210 --no-ping")
	testkit.Eventually(t, 10*time.Second, func() bool {
		return strings.Contains(server.String(), "DHCP, IP range")
	}, "dnsmasq does not serve")
	f := checkOtherDHCP(t.Context(), "br0", false)
	if f.Level != doctor.Fail || !strings.Contains(f.What, "10.7.0.2,") ||
		!strings.Contains(f.Remedy, "stop that server") {
		t.Errorf("beside dnsmasq: %+v", f)
	}
	if f := checkOtherDHCP(t.Context(), "br0", true); f.Level != doctor.OK {
		t.Errorf("beside dnsmasq, in mode proxy: %+v", f)
	}
}

// TestDoctorNamesBMCsThatDoNotAnswer beside those that do: Redfish, and IPMI of OpenIPMI's simulator.
func TestDoctorNamesBMCsThatDoNotAnswer(t *testing.T) {
	chassis := &bmc.Memory{Info: bmc.About{Name: "m-1", UUID: "6f1d2c3b-0000-4000-8000-0123456789ab"}}
	redfish, err := bmc.StartRedfish(t.Context(), bmc.RedfishConfig{Chassis: chassis, Listen: "127.0.0.1:0", User: "admin",
		Password: "s3cret-bmc"})
	if err != nil {
		t.Fatal(err)
	}
	defer redfish.Close()
	ipmi, err := bmc.StartIPMI(t.Context(), bmc.IPMIConfig{Chassis: chassis, Dir: testkit.TempDir(t),
		Addr: netip.MustParseAddrPort("127.0.0.1:0"), User: "admin", Password: "s3cret-bmc"})
	if err != nil {
		t.Fatal(err)
	}
	defer ipmi.Close()
	page := httptest.NewTLSServer(http.NotFoundHandler())
	defer page.Close()
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	silent, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	list := checkBMCs(t.Context(), []*fleetv1.BMCTarget{
		{MachineId: "m-1", Endpoint: "redfish://" + redfish.Addr()},
		{MachineId: "m-2", Endpoint: "ipmi://" + ipmi.Addr()},
		{MachineId: "m-3", Endpoint: "redfish://" + strings.TrimPrefix(page.URL, "https://")},
		{MachineId: "m-4", Endpoint: "redfish://" + gone},
		{MachineId: "m-5", Endpoint: "ipmi://" + silent.LocalAddr().String()},
		{MachineId: "m-6", Endpoint: "gopher://nowhere"},
	})
	want := []string{"m-3: https://", "m-4: https://", "m-5: " + silent.LocalAddr().String(), "m-6: bmc_endpoint",
		"2 of 6 BMCs answer"}
	if len(list) != len(want) {
		t.Fatalf("found %+v", list)
	}
	for i, f := range list {
		if !strings.HasPrefix(f.What, want[i]) || (f.Level == doctor.OK) != (i == len(want)-1) {
			t.Errorf("found %+v, want %q", f, want[i])
		}
	}
}
