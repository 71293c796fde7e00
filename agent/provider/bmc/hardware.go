package bmc

import (
	"context"
	"errors"
	"fmt"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/failure"
)

// MaxUnknownDocument is how many bytes a document of a BMC may have that is no machine's yet: many are read at a time.
const MaxUnknownDocument = 1 << 20

// Hardware logs in to a BMC that belongs to no machine yet, with the caller's credentials. It reads the BMC's data on
// its machine and logs out. The same budget holds as for machines: what the BMC has refused before is not sent again.
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

// ReadHardware reads the BMC's data on its machine's hardware. Each question is one of its own, so that a command to
// the same BMC waits for one of them at most. What could not be read is named in NotRead. A sensor of it stands among
// the others with the health unknown, so that a reading without it clears none of its faults. A BMC that is not reached
// at all is an error.
func (p *Provider) ReadHardware(ctx context.Context, t provider.Target) (provider.Reading, error) {
	r := provider.Reading{MachineID: t.MachineID, Endpoint: t.BMCEndpoint}
	questions := []struct {
		name string
		ask  func(context.Context, driver) error
	}{
		{questionSensors, func(ctx context.Context, d driver) (err error) { r.Sensors, err = d.Sensors(ctx); return err }},
		{"event log", func(ctx context.Context, d driver) (err error) {
			r.Events, err = d.EventLog(ctx, readEvents)
			return err
		}},
		{"identify light", func(ctx context.Context, d driver) (err error) { r.Light, err = d.Light(ctx); return err }},
	}
	for _, q := range questions {
		err := p.call(ctx, t, q.ask)
		var some *provider.Incomplete
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return r, err
		case errors.As(err, &some):
			for _, text := range some.Missing {
				r.NotRead = append(r.NotRead, q.name+": "+text)
			}
		case q.name == questionSensors && !errors.Is(err, effect.ErrUnsupported):
			if len(r.Sensors) == 0 && failure.ReasonOf(err) != "EXECUTION_FAILED" {
				return r, err // it is not reached, which its reachability shows
			}
			r.Sensors = append(r.Sensors, provider.NotRead("all sensors", "sensor", failure.From(err).Message))
		default:
			r.NotRead = append(r.NotRead, q.name+": "+err.Error())
		}
	}
	r.NotRead = append(unread(r.Sensors), r.NotRead...)
	r.ReadAt = p.cfg.Clock.Now()
	return r, nil
}

const questionSensors = "sensors"

// unread names the sensors that could not be read, most of them in one line: there may be as many as sensors.
func unread(sensors []provider.Sensor) (out []string) {
	const most = 4
	more := 0
	for _, s := range sensors {
		switch why := s.WhyNotRead(); {
		case why == "":
		case len(out) < most:
			out = append(out, s.Kind+" "+s.Name+": "+why)
		default:
			more++
		}
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("%d more sensors, which are listed as unknown", more))
	}
	return out
}

// SetLight lights the identify light, or turns it off.
func (p *Provider) SetLight(ctx context.Context, t provider.Target, want provider.Light) error {
	p.cfg.Log.InfoContext(ctx, "setting identify light", "machine_id", t.MachineID, "light", string(want))
	return p.call(ctx, t, func(ctx context.Context, d driver) error { return d.Identify(ctx, want == provider.LightOn) })
}
