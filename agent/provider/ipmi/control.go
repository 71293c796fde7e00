package ipmi

import (
	"context"
	"errors"
	"fmt"

	"github.com/bougou/go-ipmi/pkg/command/chassis"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
)

// ReasonNotOfIPMI is the reason of a refusal of what IPMI, or this BMC, has no word for.
const ReasonNotOfIPMI = "NOT_OF_BMC"

func refuse(format string, args ...any) error {
	return &effect.Refusal{Kind: effect.ErrUnsupported, Reason: ReasonNotOfIPMI, Detail: fmt.Sprintf(format, args...)}
}

// PowerState returns the power state of Get Chassis Status (28.2).
func (c *Client) PowerState(ctx context.Context) (state provider.PowerState, err error) {
	state = provider.PowerUnknown
	err = c.call(ctx, func() error {
		status, err := c.api.GetChassisStatus(ctx)
		if err != nil {
			return err
		}
		if state = provider.PowerOff; status.PowerIsOn {
			state = provider.PowerOn
		}
		return nil
	})
	return state, err
}

// controls of Chassis Control (28.3). Cycle and reset are not among them.
var controls = map[provider.Switch]chassis.ChassisControl{
	provider.SwitchOn: chassis.ChassisControlPowerUp, provider.SwitchOff: chassis.ChassisControlPowerDown,
	provider.SwitchSoftOff: chassis.ChassisControlSoftShutdown,
}

// Switch returns when the BMC has accepted.
func (c *Client) Switch(ctx context.Context, sw provider.Switch) error {
	control, ok := controls[sw]
	if !ok {
		return &effect.Refusal{Kind: effect.ErrInvalid, Reason: effect.ReasonInvalid, Detail: fmt.Sprintf("switch %q", sw)}
	}
	return c.call(ctx, func() error {
		_, err := c.api.ChassisControl(ctx, control)
		if unsupported(err) {
			return refuse("the BMC cannot switch %q", sw)
		}
		return err
	})
}

// selectors of the boot flags (table 28-14, parameter 5). There is none for HTTP boot.
var selectors = map[provider.BootDevice]types.BootDeviceSelector{
	provider.BootDefault: types.BootDeviceSelectorNoOverride, provider.BootPXE: types.BootDeviceSelectorForcePXE,
	provider.BootDisk: types.BootDeviceSelectorForceHardDrive, provider.BootMedia: types.BootDeviceSelectorForceCDROM,
}

// choice is what the flags mean for the next boot. ignoreValid is for a simulator that never sets the valid bit.
func choice(f types.BootOptionParam_BootFlags, ignoreValid bool) provider.BootChoice {
	c := provider.BootChoice{Proof: provider.BootRead}
	if f.BootFlagsValid || ignoreValid {
		c.Device = device(f)
		c.Stays = f.Persist && c.Device != provider.BootDefault
	}
	return c
}

func device(f types.BootOptionParam_BootFlags) provider.BootDevice {
	switch f.BootDeviceSelector {
	case types.BootDeviceSelectorForceRemoteCDROM, types.BootDeviceSelectorForceRemoteMedia:
		return provider.BootMedia
	}
	for d, s := range selectors {
		if s == f.BootDeviceSelector {
			return d
		}
	}
	return provider.BootDefault
}

// BootOnce is the device of the next boot.
func (c *Client) BootOnce(ctx context.Context) (next provider.BootChoice, err error) {
	err = c.call(ctx, func() error {
		var flags types.BootOptionParam_BootFlags
		if err := c.api.GetSystemBootOptionsParamFor(ctx, &flags); err != nil {
			return err
		}
		next = choice(flags, c.simulator)
		return nil
	})
	return next, err
}

// SetBootOnce sets the device of the next boot. BootDefault takes an earlier choice back. ordered is always false: what
// the BMC accepts is read back.
func (c *Client) SetBootOnce(ctx context.Context, d provider.BootDevice) (ordered bool, err error) {
	forms, ok := bootFlags(d, c.cfg.BIOS)
	if !ok {
		return false, refuse("IPMI has no boot device %q", d)
	}
	return false, c.call(ctx, func() error {
		c.keepFlags(ctx)
		var err error
		for _, f := range forms {
			if err = c.api.SetSystemBootOptionsParamFor(ctx, &f); !answeredNo(err) {
				return err
			}
		}
		return err
	})
}

// bootFlags returns the forms of the order, the preferred one first. UEFI firmware boots in BIOS compatibility, or not
// at all, without the bit for EFI: it is set unless the machine is known to have a BIOS. A BMC that refuses the bit
// gets the flags without it.
func bootFlags(d provider.BootDevice, bios bool) (forms []types.BootOptionParam_BootFlags, ok bool) {
	selector, ok := selectors[d]
	plain := types.BootOptionParam_BootFlags{BootFlagsValid: d != provider.BootDefault, BootDeviceSelector: selector}
	if bios || d == provider.BootDefault {
		return []types.BootOptionParam_BootFlags{plain}, ok
	}
	efi := plain
	efi.BIOSBootType = types.BIOSBootTypeEFI
	return []types.BootOptionParam_BootFlags{efi, plain}, ok
}

// answeredNo reports whether err is a completion code: the BMC has understood and refuses.
func answeredNo(err error) bool {
	var completed *types.ResponseError
	return errors.As(err, &completed)
}

// keepFlags asks the BMC not to drop the flags by itself: else they are gone when no power command has come within 60
// s, or when the machine is switched off by hand (parameter 3). Not every BMC has it; the flags are read back later.
func (c *Client) keepFlags(ctx context.Context) {
	const all = 0x1f
	_, _ = c.api.SetSystemBootOptionsParam(ctx, &chassis.SetSystemBootOptionsParamRequest{
		ParamSelector: types.BootOptionParamSelector_BMCBootFlagValidBitClear, ParamData: []byte{all},
	})
}

// Identify lights the identify LED until further notice, or turns it off (28.5).
func (c *Client) Identify(ctx context.Context, on bool) error {
	return c.call(ctx, func() error {
		_, err := c.api.ChassisIdentify(ctx, 0, on)
		if unsupported(err) {
			return refuse("the BMC offers no identify light")
		}
		return err
	})
}

// Light reads the identify light, where Get Chassis Status has it (28.2).
func (c *Client) Light(ctx context.Context) (light provider.Light, err error) {
	err = c.call(ctx, func() error {
		status, err := c.api.GetChassisStatus(ctx)
		if err != nil || !status.ChassisIdentifySupported {
			return err
		}
		if light = provider.LightOn; status.ChassisIdentifyState == chassis.ChassisIdentifyStateOff {
			light = provider.LightOff
		}
		return nil
	})
	return light, err
}

// Media: IPMI has no standard for virtual media.
func (c *Client) Media(context.Context) ([]provider.Medium, error) {
	return nil, refuse("IPMI has no virtual media")
}

// InsertMedia refuses, as Media does.
func (c *Client) InsertMedia(context.Context, string, string) error {
	return refuse("IPMI has no virtual media")
}

// EjectMedia refuses, as Media does.
func (c *Client) EjectMedia(context.Context, string) error {
	return refuse("IPMI has no virtual media")
}
