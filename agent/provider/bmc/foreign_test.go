package bmc_test

import (
	"errors"
	"flag"
	"net/url"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
)

// Foreign services are no part of the project. Set an endpoint to drive one instead of the laboratory's, such as
// redfish+http://127.0.0.1:8000; the account has the form user:password.
var (
	foreignService = flag.String("bmc-service", "", "endpoint of a BMC to power on and off, and to boot from the network")
	foreignAccount = flag.String("bmc-account", user+":"+password, "its account")
)

// Any service is switched both ways and read back. The next boot is set to the network, and reset where the service has
// a form for that.
func TestAnyService(t *testing.T) {
	t.Parallel()
	endpoint := *foreignService
	if endpoint == "" {
		endpoint = startRedfish(t, newChassis(false)).Endpoint()
	}
	account, err := url.Parse("//" + *foreignAccount + "@account")
	if err != nil {
		t.Fatal(err)
	}
	s := newSafe("")
	s.creds.Username = account.User.Username()
	s.creds.Password, _ = account.User.Password()
	p := newProvider(t, s, func(cfg *bmc.Config) { cfg.Within, cfg.SoftOff = time.Minute, 20*time.Second })
	tg := target(endpoint)
	var cycle provider.Cycle
	for round := range 2 {
		proof, err := p.SetBootDevice(t.Context(), tg, cause("c"), provider.BootPXE)
		t.Logf("round %d: next boot from the network: %q, %v", round, proof, err)
		if err != nil {
			t.Error(err)
		}
		began := time.Now()
		keep := func(provider.Cycle) error { return nil }
		if err := p.TurnOff(t.Context(), tg, cause("c"), round == 1, &cycle, keep); err != nil {
			t.Fatal(err)
		}
		if err := p.TurnOn(t.Context(), tg, cause("c"), &cycle, keep); err != nil {
			t.Fatal(err)
		}
		t.Logf("off and on by %s in %v", cycle.Protocol, time.Since(began).Round(time.Millisecond))
	}
	now, err := p.BootNext(t.Context(), tg)
	t.Logf("after the boots: %+v, %v", now, err)
	if _, err := p.SetBootDevice(t.Context(), tg, cause("c"), provider.BootDefault); err != nil {
		t.Logf("taking it back: %v", err)
		if *foreignService == "" {
			t.Error(err)
		}
	}
	read, err := p.ReadHardware(t.Context(), tg)
	t.Logf("%d sensors, %d events, light %q, not read: %q (%v)", len(read.Sensors), len(read.Events), read.Light,
		read.NotRead, err)
	if err := p.SetPower(t.Context(), tg, cause("c"), provider.PowerOff); err != nil &&
		!errors.Is(err, effect.ErrUnsupported) {
		t.Error(err)
	}
}
