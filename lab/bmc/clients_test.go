package bmc_test

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/bmc"
)

const user, password = "admin", "s3cret-bmc"

func newChassis() *bmc.Memory {
	return &bmc.Memory{Info: bmc.About{
		Name: "m1", UUID: "6f1d2c3b-0000-4000-8000-0123456789ab", Serial: "LAB-1", MACs: []string{"52:54:00:00:00:01"},
		UEFI: true,
	}}
}

func startRedfish(t *testing.T, c bmc.Chassis) *bmc.Redfish {
	t.Helper()
	r, err := bmc.StartRedfish(t.Context(), bmc.RedfishConfig{Chassis: c, Listen: "127.0.0.1:0", User: user,
		Password: password})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func startIPMI(t *testing.T, c bmc.Chassis) *bmc.IPMI {
	t.Helper()
	s, err := bmc.StartIPMI(t.Context(), bmc.IPMIConfig{
		Chassis: c, Dir: testkit.TempDir(t), Addr: netip.MustParseAddrPort("127.0.0.1:0"), User: user, Password: password,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func power(t *testing.T, c bmc.Chassis, want bmc.Power) {
	t.Helper()
	if got, err := c.PowerState(t.Context()); err != nil || got != want {
		t.Errorf("power is %q, %v; want %q", got, err, want)
	}
}

func once(t *testing.T, c bmc.Chassis, want bmc.Boot) {
	t.Helper()
	if got, err := c.BootOnce(t.Context()); err != nil || got != want {
		t.Errorf("boot once is %q, %v; want %q", got, err, want)
	}
}

// redfishtool is the DMTF's own client (Debian package redfishtool).
func TestRedfishtool(t *testing.T) {
	t.Parallel()
	c := newChassis()
	r := startRedfish(t, c)
	rt := func(auth string, args ...string) map[string]any {
		t.Helper()
		out := run(t, "redfishtool", append([]string{"-r", r.Addr(), "-u", user, "-p", password, "-A", auth, "-S", "Always"},
			args...)...)
		var doc map[string]any
		if strings.TrimSpace(out) != "" {
			if err := json.Unmarshal([]byte(out), &doc); err != nil {
				t.Fatalf("redfishtool %v: %v\n%s", args, err, out)
			}
		}
		return doc
	}
	for _, auth := range []string{"Basic", "Session"} {
		if doc := rt(auth, "Systems", "-I", "1"); doc["PowerState"] != "Off" || doc["UUID"] != c.Info.UUID {
			t.Errorf("system: %v", doc)
		}
		rt(auth, "Systems", "-I", "1", "setBootOverride", "Once", "Pxe")
		once(t, c, bmc.BootPXE)
		rt(auth, "Systems", "-I", "1", "reset", "On")
		power(t, c, bmc.On)
		once(t, c, bmc.BootNone)
		rt(auth, "Systems", "-I", "1", "setBootOverride", "Once", "Hdd")
		rt(auth, "Systems", "-I", "1", "reset", "ForceRestart")
		rt(auth, "Systems", "-I", "1", "setIndicatorLed", "Lit")
		if doc := rt(auth, "Chassis", "-I", "1"); doc["IndicatorLED"] != "Lit" {
			t.Errorf("chassis: %v", doc)
		}
		rt(auth, "Systems", "-I", "1", "reset", "GracefulShutdown")
		power(t, c, bmc.Off)
		for _, args := range [][]string{{"root"}, {"Managers"}, {"Managers", "-I", "1"}, {"SessionService"},
			{"Systems", "-I", "1", "EthernetInterfaces"}} {
			if doc := rt(auth, args...); doc["@odata.id"] == nil {
				t.Errorf("redfishtool %v: %v", args, doc)
			}
		}
	}
	want := []bmc.Boot{bmc.BootPXE, bmc.BootDisk, bmc.BootPXE, bmc.BootDisk}
	if got := c.Booted(); !slices.Equal(got, want) {
		t.Errorf("booted from %q, want %q", got, want)
	}
}

func ipmitool(t *testing.T, s *bmc.IPMI, args ...string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return run(t, "ipmitool",
		append([]string{"-I", "lanplus", "-C", "3", "-H", host, "-p", port, "-U", user, "-P", password}, args...)...)
}

func TestIPMItool(t *testing.T) {
	t.Parallel()
	c := newChassis()
	s := startIPMI(t, c)
	said := func(want string, args ...string) {
		t.Helper()
		if out := ipmitool(t, s, args...); !strings.Contains(out, want) {
			t.Errorf("ipmitool %v says %q, want %q in it", args, out, want)
		}
	}
	said("Chassis Power is off", "chassis", "power", "status")
	said("Set Boot Device to pxe", "chassis", "bootdev", "pxe")
	once(t, c, bmc.BootPXE)
	said("Up/On", "chassis", "power", "on")
	power(t, c, bmc.On)
	said("Chassis Power is on", "chassis", "power", "status")
	said("Set Boot Device to disk", "chassis", "bootdev", "disk")
	said("Reset", "chassis", "power", "reset")
	power(t, c, bmc.On)
	said("Soft", "chassis", "power", "soft")
	power(t, c, bmc.Off)
	said("Version", "sel", "info")
	said("System Boot Initiated", "sel", "list")
	said("23 degrees C", "sdr", "list")
	if got, want := c.Booted(), []bmc.Boot{bmc.BootPXE, bmc.BootDisk}; !slices.Equal(got, want) {
		t.Errorf("booted from %q, want %q", got, want)
	}
}

// Where there is no perl, the program that the laboratory is helps itself.
func TestOwnHelper(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := newChassis()
	s, err := bmc.StartIPMI(t.Context(), bmc.IPMIConfig{
		Chassis: c, Dir: testkit.TempDir(t), Addr: netip.MustParseAddrPort("127.0.0.1:0"), User: user, Password: password,
		Helper: []string{self, bmc.ControlCommand},
	})
	if err != nil {
		t.Fatal(err)
	}
	ipmitool(t, s, "chassis", "power", "on")
	power(t, c, bmc.On)
	if out := ipmitool(t, s, "chassis", "power", "status"); !strings.Contains(out, "is on") {
		t.Errorf("ipmitool says %q", out)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for _, bad := range []bmc.IPMIConfig{
		{Chassis: c, Dir: testkit.TempDir(t), Addr: netip.MustParseAddrPort("127.0.0.1:0"), User: "a b", Password: password},
		{Chassis: c, Dir: testkit.TempDir(t), Addr: netip.MustParseAddrPort("127.0.0.1:0"), User: user,
			Password: strings.Repeat("x", 21)},
	} {
		if _, err := bmc.StartIPMI(t.Context(), bad); err == nil {
			t.Errorf("%q with %q is taken", bad.User, bad.Password)
		}
	}
}
