package attack

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	agentprovider "github.com/ingot-metal/ingot/agent/provider"
	bmcprovider "github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/harness"
)

// addressAttempts are those about addresses: whom the system calls, who answers there, and whose they are.
func addressAttempts() []Attempt {
	return []Attempt{
		{Party: Admin, Attempt: "have a cloud's metadata service called", Rule: 6, Run: callMetadata},
		{Party: Operator, Attempt: "learn a machine outside of the selection by its MAC", Rule: 12, Run: nameByMAC,
			Config: theProvider().config()},
		{Party: Box, Attempt: "park a BMC by one 401 in its place", Rule: 1, Run: parkBMC},
	}
}

// metadataServices are the addresses of metadata services, in several forms.
var metadataServices = []string{
	"169.254.169.254", "100.100.100.200", "[::ffff:169.254.169.254]", "[::ffff:100.100.100.200]", "[64:ff9b::a9fe:a9fe]",
	"[fd00:ec2::254]", "168.63.129.16",
}

// callMetadata: metadata services as BMCs, as an address to look for BMCs at, and as a webhook.
func callMetadata(ctx context.Context, r *Rig) (Outcome, error) {
	tries := 0
	for i, host := range metadataServices {
		for _, endpoint := range []string{host, "redfish+http://" + host + ":80"} {
			_, err := r.C.Machines().RegisterMachine(ctx, &baremetalv1.RegisterMachineRequest{Machine: &baremetalv1.Machine{
				MachineId: fmt.Sprintf("m-meta-%d", tries), Spec: &baremetalv1.MachineSpec{BmcEndpoint: endpoint}}})
			if tries++; !harness.HasReason(err, "INVALID_FIELD") {
				return breached("a BMC at %s: %v", endpoint, err), nil
			}
		}
		_, err := r.C.Admin().CreateWebhook(ctx, &baremetalv1.CreateWebhookRequest{Webhook: &baremetalv1.Webhook{
			WebhookId: fmt.Sprintf("h-meta-%d", i), Url: "https://" + host + "/latest/meta-data"}})
		if tries++; err == nil {
			return breached("a webhook at %s", host), nil
		}
	}
	return held("%d endpoints and webhooks refused", tries), nil
}

// nameByMAC: Eve is an admin of the machines of one site, and sets the MAC address of another machine on hers.
func nameByMAC(ctx context.Context, r *Rig) (Outcome, error) {
	p := theProvider()
	p.start()
	const inside, outside, mac = "m-eves-own", "m-not-eves", "52:54:00:aa:bb:01"
	r.C.Register(&baremetalv1.Machine{MachineId: inside, Spec: &baremetalv1.MachineSpec{Site: "here"}})
	r.C.Register(&baremetalv1.Machine{MachineId: outside,
		Spec: &baremetalv1.MachineSpec{Site: "there", MacAddresses: []string{mac}}})
	_, err := baremetalv1.NewAccessServiceClient(r.C.Conn()).CreateRoleBinding(ctx,
		&baremetalv1.CreateRoleBindingRequest{
			Binding: &baremetalv1.RoleBinding{Role: "admin", Group: "team", Selection: "site=here"}})
	if err != nil {
		return Outcome{}, err
	}
	eve := r.C.WithToken(p.token())
	testkit.Eventually(r.T, time.Minute, func() bool {
		_, err := eve.Machines().GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: inside})
		return err == nil
	}, "the controller does not know the new role")
	_, err = eve.Machines().UpdateMachine(ctx, &baremetalv1.UpdateMachineRequest{Machine: &baremetalv1.Machine{
		MachineId: inside, Spec: &baremetalv1.MachineSpec{Site: "here", MacAddresses: []string{mac}}}})
	switch {
	case err == nil:
		return breached("her machine has the MAC address of another"), nil
	case strings.Contains(fmt.Sprintf("%+v", failure.From(err)), outside), strings.Contains(err.Error(), outside):
		return breached("the refusal names the machine: %v", err), nil
	case !harness.HasReason(err, "MAC_ADDRESS_IN_USE") && !refusedSelection(err):
		return Outcome{}, err
	}
	return held("refused without a name: %v", err), nil
}

// parkBMC: something answers in the place of a BMC once, with 401, to credentials that the BMC takes. The BMC must be
// worked with soon after, and see no more wrong log-ins than it forgives.
func parkBMC(ctx context.Context, r *Rig) (Outcome, error) {
	device, err := bmc.StartRedfish(ctx, bmc.RedfishConfig{Chassis: &bmc.Memory{Info: bmc.About{Name: "attacked"}},
		Listen: "127.0.0.1:0", User: "admin", Password: "right"})
	if err != nil {
		return Outcome{}, err
	}
	r.T.Cleanup(func() { _ = device.Close() })
	device.Misbehave(bmc.Faults{LockAfter: 3})
	clk := clock.NewFake(time.Now())
	p := bmcprovider.New(bmcprovider.Config{
		Clock: clk, Log: testkit.Logger(r.T), Memory: bmcprovider.FileMemory(filepath.Join(r.T.TempDir(), "bmcs.json")),
		Credentials: func(context.Context, agentprovider.Target) (bmcprovider.Credentials, error) {
			return bmcprovider.Credentials{Username: "admin", Password: "right", Version: 1, Allowed: []string{"127.0.0.0/8"},
				UnverifiedTLS: true}, nil
		},
	})
	defer p.Close(ctx)
	ask := func() error {
		_, err := p.PowerState(
			ctx,
			agentprovider.Target{MachineID: "m-1", BMCEndpoint: device.Endpoint(), CredentialsRef: "rack"},
		)
		return err
	}
	if err := ask(); err != nil {
		return Outcome{}, fmt.Errorf("before the attack: %w", err)
	}
	device.SetPassword("of the attacker")
	device.ForgetSessions()
	if err := ask(); err == nil {
		return Outcome{}, errors.New("the 401 was not met")
	}
	device.SetPassword("right")
	clk.Advance(time.Minute)
	if err := ask(); err != nil {
		return breached("a minute after one 401: %v", err), nil
	}
	if n := device.Counts(); n.Locked || n.WrongPasswords > 1 {
		return breached("%d wrong log-ins, locked: %t", n.WrongPasswords, n.Locked), nil
	}
	return held("the BMC is asked once more after half a minute, and answers"), nil
}
