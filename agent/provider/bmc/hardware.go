package bmc

import (
	"context"
	"errors"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
)

// MaxUnknownDocument is how many bytes a document of a BMC may have that is no machine's yet: many are read at a time.
const MaxUnknownDocument = 1 << 20

// Hardware logs in to a BMC that is no machine's yet, with credentials that the caller holds, reads what it says of its
// machine, and logs out. The same budget holds as for machines: what the BMC has refused before is not sent again.
// accepted is called when it has taken the credentials. What was read stands beside an error too.
func (p *Provider) Hardware(
	ctx context.Context, endpoint, ref string, creds Credentials, accepted func(),
) (found provider.Hardware, err error) {
	t := provider.Target{BMCEndpoint: endpoint, CredentialsRef: ref, CredentialsVersion: creds.Version}
	err = p.callWith(ctx, t, &creds, func(ctx context.Context, d driver) error {
		accepted()
		var err error
		found, err = d.Hardware(ctx)
		return err
	})
	return found, err
}

// readEvents is how many entries of its log a BMC is asked for, the newest ones.
const readEvents = 20

// ReadHardware reads what the BMC says of its machine's hardware. Each question is one of its own, so that a command to
// the same BMC waits for one of them at most. What the BMC does not offer is in NotRead. Sensors that could not be read
// are an error, because a reading without them would clear all faults.
func (p *Provider) ReadHardware(ctx context.Context, t provider.Target) (provider.Reading, error) {
	r := provider.Reading{MachineID: t.MachineID, Endpoint: t.BMCEndpoint}
	questions := []struct {
		name string
		ask  func(context.Context, driver) error
	}{
		{"sensors", func(ctx context.Context, d driver) (err error) { r.Sensors, err = d.Sensors(ctx); return err }},
		{"event log", func(ctx context.Context, d driver) (err error) {
			r.Events, err = d.EventLog(ctx, readEvents)
			return err
		}},
		{"identify light", func(ctx context.Context, d driver) (err error) { r.Light, err = d.Light(ctx); return err }},
	}
	for i, q := range questions {
		err := p.call(ctx, t, q.ask)
		switch {
		case err == nil:
		case ctx.Err() != nil, i == 0 && !errors.Is(err, effect.ErrUnsupported):
			return r, err
		default:
			r.NotRead = append(r.NotRead, q.name+": "+err.Error())
		}
	}
	r.ReadAt = p.cfg.Clock.Now()
	return r, nil
}

// SetLight lights the identify light, or turns it off.
func (p *Provider) SetLight(ctx context.Context, t provider.Target, want provider.Light) error {
	p.cfg.Log.InfoContext(ctx, "setting identify light", "machine_id", t.MachineID, "light", string(want))
	return p.call(ctx, t, func(ctx context.Context, d driver) error { return d.Identify(ctx, want == provider.LightOn) })
}
