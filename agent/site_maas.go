package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor/provideraction"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/maas"
)

// commandPoll is how often MAAS is looked at while it works for a command.
const commandPoll = 5 * time.Second

// regions asks the controller for the MAAS regions of machines. Keys stay in memory.
type regions struct {
	ask func(ctx context.Context, machineID, ref string) (maas.Region, error)

	mu    sync.Mutex
	known map[string]openRegion
}

// openRegion is a region as of a version of it.
type openRegion struct {
	client  *maas.Client
	version int64
}

func (l *life) setUpMAAS(w *siteWork, log *slog.Logger) {
	w.regions = &regions{ask: l.controller.maasRegion, known: map[string]openRegion{}}
	w.maas = maas.NewProber(maas.ProberConfig{
		Open: w.regions.open, Clock: l.a.cfg.Clock, Log: log, Every: l.a.cfg.Site.MAASPoll,
		Report: func(o maas.Observation) { w.service.Reports().Provider(maasReport(o)) },
	})
}

// maasRegion asks the controller.
func (ctl controllerClient) maasRegion(ctx context.Context, machineID, ref string) (r maas.Region, err error) {
	err = ctl.call(ctx, func(ctx context.Context, client fleetv1.AgentServiceClient) error {
		a, err := client.GetMAASRegion(ctx, &fleetv1.GetMAASRegionRequest{MachineId: machineID, RegionRef: ref})
		r = maas.Region{
			Ref: ref, Endpoint: a.GetEndpoint(), APIKey: a.GetApiKey(), CA: a.GetCaPem(), Version: a.GetVersion(),
			UserData: a.GetUserData(),
			Retain:   a.GetRetainMachines(),
		}
		return err
	})
	if err != nil {
		return maas.Region{}, fmt.Errorf("ask for the MAAS region of a machine: %w", err)
	}
	return r, nil
}

// open returns the client of a target's region. It is asked for again when the region has changed.
func (r *regions) open(ctx context.Context, t maas.Target) (*maas.Client, error) {
	r.mu.Lock()
	known, ok := r.known[t.RegionRef]
	r.mu.Unlock()
	if ok && known.version == t.RegionVersion {
		return known.client, nil
	}
	region, err := r.ask(ctx, t.MachineID, t.RegionRef)
	if err != nil {
		return nil, err
	}
	client, err := maas.NewClient(region, 0)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[t.RegionRef] = openRegion{client, region.Version}
	return client, nil
}

// providerActions is what the executor of provider actions needs. It asks for the region anew: a command is worth it.
func (l *life) providerActions() provideraction.Config {
	return provideraction.Config{
		Open: func(ctx context.Context, machineID, ref string) (*maas.Client, maas.Region, error) {
			region, err := l.controller.maasRegion(ctx, machineID, ref)
			if err != nil {
				return nil, region, err
			}
			client, err := maas.NewClient(region, 0)
			return client, region, err
		},
		Identity: l.controller.deployedIdentity, Power: l.controller.maasPower, Clock: l.a.cfg.Clock,
		Poll: min(l.a.cfg.Site.MAASPoll, commandPoll),
	}
}

// deployedIdentity asks for what the system that a command deploys enrols with.
func (ctl controllerClient) deployedIdentity(
	ctx context.Context,
	commandID string,
) (bundle, hostname string, err error) {
	err = ctl.call(ctx, func(ctx context.Context, c fleetv1.AgentServiceClient) error {
		a, err := c.IssueIdentity(ctx, &fleetv1.IssueIdentityRequest{CommandId: commandID})
		bundle, hostname = a.GetBootstrapBundle(), a.GetHostname()
		return err
	})
	if err != nil {
		return "", "", fmt.Errorf("ask for an identity: %w", err)
	}
	return bundle, hostname, nil
}

// maasPower returns the power settings for a machine that is new to MAAS: our own.
func (ctl controllerClient) maasPower(
	ctx context.Context,
	spec *fleetv1.CommandSpec,
) (string, map[string]string, error) {
	endpoint := spec.GetBmcEndpoint()
	if endpoint == "" {
		return "manual", nil, nil
	}
	c, err := ctl.bmcCredentials(ctx, provider.Target{MachineID: spec.GetTargetId(),
		CredentialsRef: spec.GetBmcCredentialsRef()})
	if err != nil {
		return "", nil, err
	}
	kind, address := "ipmi", endpoint
	if u, err := url.Parse(endpoint); err == nil && u.Host != "" {
		address = u.Host
		if strings.HasPrefix(u.Scheme, "redfish") {
			kind = "redfish"
		}
	}
	return kind, map[string]string{"power_address": address, "power_user": c.Username, "power_pass": c.Password}, nil
}

func maasTargets(list []*fleetv1.ProviderTarget) []maas.Target {
	var out []maas.Target
	for _, t := range list {
		if t.GetProvider() == provideraction.Provider {
			out = append(out, maas.Target{
				MachineID: t.GetMachineId(), RegionRef: t.GetRegionRef(), RegionVersion: t.GetRegionVersion(),
				MACs: t.GetMacAddresses(), Serial: t.GetSerial(),
			})
		}
	}
	return out
}

func maasReport(o maas.Observation) *fleetv1.ProviderObservation {
	out := &fleetv1.ProviderObservation{
		MachineId: o.MachineID, Provider: provideraction.Provider, Reachable: o.Reachable, Present: o.M != nil,
		Reason:  o.Reason,
		Message: o.Message, SeenAt: timestamppb.New(o.SeenAt),
	}
	if m := o.M; m != nil {
		out.Status, out.StatusName, out.StatusMessage = int32(m.Status), m.StatusName, m.StatusMessage
		out.SystemId, out.PowerState, out.Deployed = m.SystemID, m.Power, m.Deployed()
		out.HeldBy = o.HeldBy
	}
	return out
}
