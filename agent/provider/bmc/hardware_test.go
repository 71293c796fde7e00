package bmc_test

import (
	"errors"
	"testing"

	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
)

// TestHardwareIsReadWithOneLogin: a BMC that takes the password and then says 401 does not get it again.
func TestHardwareIsReadWithOneLogin(t *testing.T) {
	t.Parallel()
	r := startRedfish(t, newChassis(true))
	p := newProvider(t, newSafe(password), nil)
	creds := bmc.Credentials{Username: user, Password: password, Version: 1, Allowed: []string{"127.0.0.0/8"}}
	found, err := p.Hardware(t.Context(), r.Endpoint(), "rack", creds, func() {})
	if err != nil || found.Serial != "LAB-1" || len(found.MACs) != 1 {
		t.Errorf("read %+v, %v", found, err)
	}
	if n := r.Counts(); n.Sessions != 1 || n.Open != 0 {
		t.Errorf("after the first: %+v", n)
	}
	_, err = p.Hardware(t.Context(), r.Endpoint(), "rack", creds, r.ForgetSessions)
	if n := r.Counts(); !errors.Is(err, provider.ErrCredentials) || n.Sessions != 2 {
		t.Errorf("a session that ended: %v, %+v", err, n)
	}
}
