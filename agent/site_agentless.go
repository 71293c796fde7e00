package agent

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/site"
	"github.com/ingot-metal/ingot/agent/site/httpboot"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// phonedHome buffers what a system without the agent has said, until the controller has it.
func (l *life) phonedHome(ctx context.Context, c httpboot.PhoneCall) error {
	now := l.a.cfg.Clock.Now()
	return l.store.Append(ctx, &fleetv1.Event{Body: &fleetv1.Event_Report{Report: &fleetv1.Report{
		Kind: evidence.PhoneHomeReport, MachineId: c.MachineID, Message: "a system has phoned home",
		Fields: map[string]string{
			evidence.PhoneHomeSecret: hex.EncodeToString(c.SecretSHA256[:]),
			evidence.PhonedHomeAt:    now.UTC().Format(time.RFC3339), evidence.PhonedHomeFrom: c.From.String(),
			evidence.InstanceID: c.InstanceID, evidence.SystemHostname: c.Hostname, evidence.SystemSSHKey: c.SSHHostKey,
		},
	}}}, now)
}

// probeEvery is how often a machine is asked that is waited for.
const probeEvery = 2 * time.Second

// probe waits until the system of a machine without an agent answers on the network.
func (l *life) probe(ctx context.Context, t *fleetv1.ProbeTarget) (map[string]string, error) {
	a, err := l.site.service.Probes().AwaitSystem(ctx, site.ProbeTarget(t), probeEvery)
	if err != nil {
		return nil, fmt.Errorf("wait for the system's answer: %w", err)
	}
	return map[string]string{
		evidence.ProbeAnsweredAt: a.At.UTC().Format(time.RFC3339Nano), evidence.ProbeAnsweredBy: a.By,
		evidence.ProbeAddress: a.Address.String(),
	}, nil
}
