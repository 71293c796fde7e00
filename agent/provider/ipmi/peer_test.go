package ipmi

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
	"github.com/bougou/go-ipmi/pkg/handlers"
	"github.com/bougou/go-ipmi/pkg/server"
	"github.com/bougou/go-ipmi/pkg/transport/udp"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
)

// peer is go-ipmi's own controller, a second implementation beside OpenIPMI's simulator. It has cipher suite 17, and
// keeps the valid bit of the boot flags.
type peer struct {
	chassis *mock.Chassis
	addr    string
}

type answer = func(ctx context.Context, h *handlers.HandlerContext, req []byte, usual handlers.Handler) ([]byte,
	types.CompletionCode, error)

// startPeer serves until the test ends. override replaces single commands.
func startPeer(t *testing.T, override map[types.Command]answer) peer {
	t.Helper()
	machine := mock.New()
	b := bmc.New(bmc.DeviceInfo{DeviceID: 32, IPMIVersion: 0x20, ManufacturerID: 674}, [16]byte{1}, machine)
	user, err := b.Users.Add(2, "admin")
	if err != nil {
		t.Fatal(err)
	}
	user.SetPassword([]byte("s3cret"))
	user.Enabled = true
	user.ChannelAccess[1] = bmc.UserChannelAccess{MaxPrivilege: bmc.PrivilegeLevelOperator, Enabled: true}
	registry := handlers.NewRegistry()
	registry.Use(func(usual handlers.Handler) handlers.Handler {
		return handlers.HandlerFunc(func(ctx context.Context, h *handlers.HandlerContext, req []byte) ([]byte,
			types.CompletionCode, error) {
			for c, other := range override {
				if c.ID == h.Command.ID && c.NetFn == h.Command.NetFn {
					return other(ctx, h, req, usual)
				}
			}
			return usual.Handle(ctx, h, req)
		})
	})
	handlers.RegisterAllHandlers(registry)
	conn, err := udp.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := server.NewServer(b, conn, server.WithHandlerRegistry(registry))
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(ctx) }) // its error is that of the end
	t.Cleanup(func() {
		stop()
		_ = s.Close()
		serving.Wait()
	})
	return peer{chassis: machine.Chassis().(*mock.Chassis), addr: conn.LocalAddr().String()}
}

func (p peer) open(t *testing.T) *Client {
	t.Helper()
	c, err := Open(t.Context(), Config{Addr: p.addr, Username: "admin", Password: "s3cret"})
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

func code(c types.CompletionCode) answer {
	return func(context.Context, *handlers.HandlerContext, []byte, handlers.Handler) ([]byte, types.CompletionCode,
		error) {
		return nil, c, nil
	}
}

// A controller that does not identify itself is driven all the same. Source: github.com/openbmc/openbmc, issues 2069
// (0xc1), 1429 (0xd4, and a first answer without data).
func TestDeviceIDIsNotNeeded(t *testing.T) {
	t.Parallel()
	for name, device := range map[string]answer{
		"as in table 20-2":        nil,
		"invalid command":         code(types.CodeInvalidCommand),
		"insufficient privileges": code(types.CodeInsufficientPrivilege),
		"no data": func(context.Context, *handlers.HandlerContext, []byte, handlers.Handler) ([]byte, types.CompletionCode,
			error) {
			return nil, types.CodeOK, nil
		},
		"cut off": func(ctx context.Context, h *handlers.HandlerContext, req []byte, usual handlers.Handler) ([]byte,
			types.CompletionCode, error) {
			data, cc, err := usual.Handle(ctx, h, req)
			return data[:min(len(data), 9)], cc, err
		},
	} {
		override := map[types.Command]answer{}
		if device != nil {
			override[types.CommandGetDeviceID] = device
		}
		c := startPeer(t, override).open(t)
		for _, want := range []provider.PowerState{provider.PowerOff, provider.PowerOn} {
			sw := map[provider.PowerState]provider.Switch{provider.PowerOff: provider.SwitchOff,
				provider.PowerOn: provider.SwitchOn}[want]
			if err := c.Switch(t.Context(), sw); err != nil {
				t.Errorf("%s: switch %s: %v", name, want, err)
			}
			if got, err := c.PowerState(t.Context()); err != nil || got != want {
				t.Errorf("%s: power reads %q, %v; want %q", name, got, err, want)
			}
		}
	}
}

// The flags as another implementation keeps them: with the bit for EFI, or without it where it is refused. Flags for
// every boot are not those for the next one.
func TestBootFlagsAtAnotherController(t *testing.T) {
	t.Parallel()
	refusesEFI := func(ctx context.Context, h *handlers.HandlerContext, req []byte, usual handlers.Handler) ([]byte,
		types.CompletionCode, error) {
		const efi = 0x20
		switch selector := req[0] & 0x7f; {
		case selector == uint8(types.BootOptionParamSelector_BMCBootFlagValidBitClear):
			return nil, types.CodeParameterNotSupported, nil
		case selector == uint8(types.BootOptionParamSelector_BootFlags) && req[1]&efi != 0:
			return nil, types.CodeParameterOutOfRange, nil
		}
		return usual.Handle(ctx, h, req)
	}
	for name, tc := range map[string]struct {
		override map[types.Command]answer
		efi      bool
	}{
		"takes all":       {nil, true},
		"refuses the bit": {map[types.Command]answer{types.CommandSetSystemBootOptions: refusesEFI}, false},
	} {
		p := startPeer(t, tc.override)
		c := p.open(t)
		for _, d := range []provider.BootDevice{provider.BootPXE, provider.BootDisk, provider.BootDefault, provider.BootPXE} {
			if _, err := c.SetBootOnce(t.Context(), d); err != nil {
				t.Fatalf("%s: boot from %q: %v", name, d, err)
			}
			if got, err := c.BootOnce(t.Context()); err != nil || !got.Once(d) {
				t.Errorf("%s: boot device reads %+v, %v; want %q", name, got, err, d)
			}
		}
		flags, err := p.chassis.GetBootFlags(t.Context())
		if err != nil || (flags.BIOSBootType == types.BIOSBootTypeEFI) != tc.efi || flags.Persist {
			t.Errorf("%s: %+v, %v", name, flags, err)
		}
		flags.Persist = true // a foreign choice for every boot
		if err := p.chassis.SetBootFlags(t.Context(), flags); err != nil {
			t.Fatal(err)
		}
		if got, err := c.BootOnce(t.Context()); err != nil || got.Once(provider.BootPXE) || !got.Stays {
			t.Errorf("%s: flags for every boot read %+v, %v", name, got, err)
		}
	}
}

// Controllers of virtual machines have neither sensors nor a log: that is no fault of theirs.
// Source: pyghmi, pyghmi/ipmi/bmc.py (what VirtualBMC is made of), which answers every unknown command with 0xc1.
func TestReadingsThatAControllerLacks(t *testing.T) {
	t.Parallel()
	c := startPeer(t, map[types.Command]answer{
		types.CommandGetSDRRepoInfo: code(types.CodeInvalidCommand), types.CommandGetSELInfo: code(types.CodeInvalidCommand),
	}).open(t)
	if _, err := c.Sensors(t.Context()); !errors.Is(err, effect.ErrUnsupported) {
		t.Errorf("sensors: %v", err)
	}
	if _, err := c.EventLog(t.Context(), 5); !errors.Is(err, effect.ErrUnsupported) {
		t.Errorf("event log: %v", err)
	}
}
