package agent

import (
	"context"
	"fmt"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor/bmcpassword"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
)

// bmcCredentials asks the controller. They stay in memory.
func (ctl controllerClient) bmcCredentials(ctx context.Context, t provider.Target) (c bmc.Credentials, err error) {
	err = ctl.call(ctx, func(ctx context.Context, client fleetv1.AgentServiceClient) error {
		answer, err := client.GetBMCCredentials(ctx, &fleetv1.GetBMCCredentialsRequest{
			MachineId: t.MachineID, CredentialsRef: t.CredentialsRef,
		})
		c = credentialsOf(answer)
		return err
	})
	if err != nil {
		return bmc.Credentials{}, fmt.Errorf("ask for the credentials of a BMC: %w", err)
	}
	return c, nil
}

func credentialsOf(r *fleetv1.GetBMCCredentialsResponse) bmc.Credentials {
	return bmc.Credentials{
		Username: r.GetUsername(), Password: r.GetPassword(), Version: r.GetVersion(),
		Allowed: r.GetAllowedEndpoints(), PlainHTTP: r.GetAllowPlainHttp(), UnverifiedTLS: r.GetAllowUnverifiedTls(),
	}
}

// bmcPasswords is what the executor of password changes needs.
func (l *life) bmcPasswords() bmcpassword.Config {
	return bmcpassword.Config{BMCs: l.site.bmcs, Order: l.controller.newPassword, Settle: l.controller.settlePassword,
		Clock: l.a.cfg.Clock}
}

// newPassword asks the controller to make and keep one. It stays in memory here.
func (ctl controllerClient) newPassword(ctx context.Context, commandID string) (o bmcpassword.Order, err error) {
	err = ctl.call(ctx, func(ctx context.Context, client fleetv1.AgentServiceClient) error {
		r, err := client.MakeBMCPassword(ctx, &fleetv1.MakeBMCPasswordRequest{CommandId: commandID})
		o.Current, o.New = credentialsOf(r.GetCurrent()), credentialsOf(r.GetCurrent())
		o.New.Password, o.New.Version = r.GetNewPassword(), r.GetNewVersion()
		o.Tried, o.InForce = r.GetTried(), r.GetNewPassword() == ""
		return err
	})
	if err != nil {
		return bmcpassword.Order{}, fmt.Errorf("ask for a new password of a BMC: %w", err)
	}
	return o, nil
}

func (ctl controllerClient) settlePassword(ctx context.Context, commandID string, version int64, accepted bool) error {
	err := ctl.call(ctx, func(ctx context.Context, client fleetv1.AgentServiceClient) error {
		_, err := client.SettleBMCPassword(ctx, &fleetv1.SettleBMCPasswordRequest{CommandId: commandID, Version: version,
			Accepted: accepted})
		return err
	})
	if err != nil {
		return fmt.Errorf("tell which password a BMC takes: %w", err)
	}
	return nil
}
