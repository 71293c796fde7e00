package ipmi

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"
	"go.uber.org/goleak"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/testkit"
	lab "github.com/ingot-metal/ingot/lab/bmc"
)

func TestMain(m *testing.M) {
	lab.MainIfControl()
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

func start(t *testing.T) (*lab.Memory, *lab.IPMI) {
	t.Helper()
	c := &lab.Memory{Info: lab.About{Name: "m-1", UUID: "6f1d2c3b-0000-4000-8000-0123456789ab"}}
	s, err := lab.StartIPMI(t.Context(), lab.IPMIConfig{
		Chassis: c, Dir: testkit.TempDir(t), Addr: netip.MustParseAddrPort("127.0.0.1:0"), User: "admin", Password: "s3cret",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, s
}

func open(t *testing.T, s *lab.IPMI) *Client {
	t.Helper()
	c, err := Open(t.Context(), Config{Addr: s.Addr(), Username: "admin", Password: "s3cret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Against OpenIPMI's simulator.
func TestAgainstSimulator(t *testing.T) {
	t.Parallel()
	chassis, sim := start(t)
	if err := Ping(t.Context(), sim.Addr()); err != nil {
		t.Errorf("ping: %v", err)
	}
	c := open(t, sim)
	for _, step := range []struct {
		sw   provider.Switch
		want provider.PowerState
	}{
		{provider.SwitchOn, provider.PowerOn}, {provider.SwitchSoftOff, provider.PowerOff},
		{provider.SwitchOn, provider.PowerOn}, {provider.SwitchOff, provider.PowerOff},
		{provider.SwitchOff, provider.PowerOff},
	} {
		if err := c.Switch(t.Context(), step.sw); err != nil {
			t.Fatalf("switch %s: %v", step.sw, err)
		}
		if got, err := c.PowerState(t.Context()); err != nil || got != step.want {
			t.Errorf("after %s power reads %q, %v", step.sw, got, err)
		}
	}
	if err := c.Switch(t.Context(), "cycle"); !errors.Is(err, effect.ErrInvalid) {
		t.Errorf("cycle: %v", err)
	}
	for _, d := range []provider.BootDevice{provider.BootPXE, provider.BootDisk, provider.BootMedia,
		provider.BootDefault} {
		if _, err := c.SetBootOnce(t.Context(), d); err != nil {
			t.Fatalf("boot from %q: %v", d, err)
		}
		if got, err := c.BootOnce(t.Context()); err != nil || !got.Once(d) {
			t.Errorf("boot device reads %+v, %v; want %q", got, err, d)
		}
	}
	if _, err := c.SetBootOnce(t.Context(), provider.BootHTTP); !errors.Is(err, effect.ErrUnsupported) {
		t.Errorf("boot from HTTP: %v", err)
	}
	for _, on := range []bool{true, false} {
		if err := c.Identify(t.Context(), on); err != nil {
			t.Errorf("identify %v: %v", on, err)
		}
	}
	if got := chassis.Booted(); len(got) != 2 {
		t.Errorf("booted %q", got)
	}
}

func TestReadings(t *testing.T) {
	t.Parallel()
	_, sim := start(t)
	c := open(t, sim)
	sensors, err := c.Sensors(t.Context())
	if err != nil || len(sensors) != 1 || sensors[0].Name != "Inlet Temp" || sensors[0].Kind != "temperature" ||
		sensors[0].Value != 23 {
		t.Errorf("sensors %+v, %v", sensors, err)
	}
	log, err := c.EventLog(t.Context(), 5)
	// the simulator's clock was never set
	if err != nil || len(log) != 1 || !strings.Contains(log[0].Message, "System Boot") || !log[0].At.IsZero() {
		t.Errorf("log %+v, %v", log, err)
	}
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	_, sim := start(t)
	for name, cfg := range map[string]Config{
		"wrong password":    {Addr: sim.Addr(), Username: "admin", Password: "wrong"},
		"unknown user":      {Addr: sim.Addr(), Username: "nobody", Password: "s3cret"},
		"no password":       {Addr: sim.Addr(), Username: "admin"},
		"password too long": {Addr: sim.Addr(), Username: "admin", Password: strings.Repeat("x", 40)},
	} {
		_, err := Open(t.Context(), cfg)
		if !errors.Is(err, provider.ErrCredentials) || strings.Contains(err.Error(), "wrong,") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(t.Context(), Config{Addr: sim.Addr(), Username: strings.Repeat("u", 17)}); !errors.Is(err,
		effect.ErrInvalid) {
		t.Errorf("a user name that is too long: %v", err)
	}
}

func TestSilence(t *testing.T) {
	t.Parallel()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0") // takes everything and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	began := time.Now()
	_, err = Open(t.Context(), Config{Addr: conn.LocalAddr().String(), Username: "u", Password: "p",
		Timeout: 100 * time.Millisecond, Retries: 2})
	if !errors.Is(err, provider.ErrSilent) || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, Config{Addr: conn.LocalAddr().String()}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if err := Ping(ctx, conn.LocalAddr().String()); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled ping: %v", err)
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err, want error
	}{
		{types.NewRmcpStatusError(types.RmcpStatusCodeNoCipherSuiteMatch), errSuite},
		{types.NewRmcpStatusError(types.RmcpStatusCodeInvalidAuthAlg), errSuite},
		{types.NewRmcpStatusError(types.RmcpStatusCodeUnauthorizedName), provider.ErrCredentials},
		{types.NewRmcpStatusError(types.RmcpStatusCodeUnauthorizedRoleOfPriLevel), provider.ErrCredentials},
		{types.NewRmcpStatusError(types.RmcpStatusCodeNoResToCreateSess), provider.ErrRefused},
		{fmt.Errorf("rakp2: %w", client.ErrRAKPAuthentication), provider.ErrCredentials},
		{&types.ResponseError{}, provider.ErrRefused},
		{refuse("no"), effect.ErrUnsupported},
		{errors.New("read: connection refused"), provider.ErrSilent},
		{cutShort(types.ErrUnpackedDataTooShortWith(2, 8), errSuite), errSuite},
		{cutShort(types.ErrUnpackedDataTooShortWith(2, 8), provider.ErrCredentials), provider.ErrCredentials},
	} {
		if got := classify(t.Context(), tc.err); !errors.Is(got, tc.want) {
			t.Errorf("%v means %v, want %v", tc.err, got, tc.want)
		}
	}
	if err := classify(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestBootFlags(t *testing.T) {
	t.Parallel()
	flags := func(valid bool, s types.BootDeviceSelector) types.BootOptionParam_BootFlags {
		return types.BootOptionParam_BootFlags{BootFlagsValid: valid, BootDeviceSelector: s}
	}
	for _, tc := range []struct {
		flags     types.BootOptionParam_BootFlags
		simulator bool
		want      provider.BootDevice
	}{
		{flags(true, types.BootDeviceSelectorForcePXE), false, provider.BootPXE},
		{flags(true, types.BootDeviceSelectorForceHardDrive), false, provider.BootDisk},
		{flags(true, types.BootDeviceSelectorForceCDROM), false, provider.BootMedia},
		{flags(true, types.BootDeviceSelectorForceRemoteCDROM), false, provider.BootMedia},
		{flags(true, types.BootDeviceSelectorForceBIOSSetup), false, provider.BootDefault},
		{flags(true, types.BootDeviceSelectorNoOverride), false, provider.BootDefault},
		// A BMC that has let the flags go leaves the device behind.
		{flags(false, types.BootDeviceSelectorForcePXE), false, provider.BootDefault},
		{flags(false, types.BootDeviceSelectorForcePXE), true, provider.BootPXE},
	} {
		if got := choice(tc.flags, tc.simulator); !got.Once(tc.want) {
			t.Errorf("%+v, simulator %v: %q, want %q", tc.flags, tc.simulator, got.Device, tc.want)
		}
	}
}

// The bytes on the wire, as others write and read them. Source: github.com/ipmitool/ipmitool, issues 236 (8004000000 is
// PXE by BIOS compatibility, a004000000 by EFI) and 258; that flags for every boot are none for the next one: issue
// 304.
func TestBootFlagsOnTheWire(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		device provider.BootDevice
		bios   bool
		want   []string
	}{
		{provider.BootPXE, false, []string{"a004000000", "8004000000"}},
		{provider.BootDisk, false, []string{"a008000000", "8008000000"}},
		{provider.BootPXE, true, []string{"8004000000"}},
		{provider.BootDefault, false, []string{"0000000000"}},
	} {
		forms, ok := bootFlags(tc.device, tc.bios)
		var got []string
		for _, f := range forms {
			got = append(got, hex.EncodeToString(f.Pack()))
		}
		if !ok || !slices.Equal(got, tc.want) {
			t.Errorf("%q, BIOS %v: %q, want %q", tc.device, tc.bios, got, tc.want)
		}
	}
	var f types.BootOptionParam_BootFlags
	if err := f.Unpack([]byte{0xe0, 4, 0, 0, 0}); err != nil || choice(f, false).Once(provider.BootPXE) ||
		choice(f, false).Device != provider.BootPXE {
		t.Errorf("flags for every boot: %+v, %v", choice(f, false), err)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	long := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	for _, tc := range []struct {
		in   types.SEL
		want provider.Event
	}{
		{
			types.SEL{RecordID: 7, OEMTimestamped: &types.SELOEMTimestamped{Timestamp: long, ManufacturerID: 674,
				OEMDefined: [6]byte{1, 2}}},
			provider.Event{ID: "7", At: long, Message: "OEM record of manufacturer 674: 01 02 00 00 00 00"},
		},
		{
			types.SEL{RecordID: 8, OEMNonTimestamped: &types.SELOEMNonTimestamped{OEM: [13]byte{0xff}}},
			provider.Event{ID: "8", Message: "OEM record: ff 00 00 00 00 00 00 00 00 00 00 00 00"},
		},
		{
			types.SEL{RecordID: 9, OEMTimestamped: &types.SELOEMTimestamped{Timestamp: time.Unix(60, 0)}},
			provider.Event{ID: "9", Message: "OEM record of manufacturer 0: 00 00 00 00 00 00"},
		},
	} {
		if got := event(&tc.in); got != tc.want {
			t.Errorf("%+v, want %+v", got, tc.want)
		}
	}
}

// FuzzPong: an answer to a ping, whatever it is.
func FuzzPong(f *testing.F) {
	pong := []byte{6, 0, 0xff, 6, 0, 0, 0x11, 0xbe, 0x40, 1, 0, 16, 0, 0, 0x11, 0xbe, 0, 0, 0, 0, 0x81, 0, 0, 0, 0, 0, 0,
		0}
	f.Add(pong)
	f.Add(presencePing)
	f.Add([]byte{})
	if !isPong(pong) || isPong(presencePing) || isPong(pong[:20]) {
		f.Fatal("a pong is not told from others")
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if isPong(b) && len(b) < 21 {
			t.Errorf("% x", b)
		}
	})
}

// FuzzEvent: any record of a log, as it comes from a BMC.
func FuzzEvent(f *testing.F) {
	f.Add([]byte{1, 0, 2, 0, 0, 0, 0, 0x20, 0, 4, 0x1d, 1, 0x6f, 1, 0xff, 0xff})
	f.Add([]byte{1, 0, 0xc0, 0, 0, 0, 0, 0x20, 0, 4, 0x1d, 1, 0x6f, 1, 0xff, 0xff})
	f.Add([]byte{1, 0, 0xe0, 0, 0, 0, 0, 0x20, 0, 4, 0x1d, 1, 0x6f, 1, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		entry, err := types.ParseSEL(b)
		if err != nil {
			return
		}
		if e := event(entry); e.ID == "" || e.Message == "" {
			t.Errorf("% x: %+v", b, e)
		}
	})
}
