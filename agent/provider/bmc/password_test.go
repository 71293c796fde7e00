package bmc_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/internal/failure"
	lab "github.com/ingot-metal/ingot/lab/bmc"
)

const newPassword = "Kq7.wX2-mB9rT4vZ"

func changeTo(next string, tried bool) bmc.PasswordChange {
	creds := func(password string, version int64) bmc.Credentials {
		return bmc.Credentials{Username: user, Password: password, Version: version, Allowed: []string{"127.0.0.0/8"}}
	}
	return bmc.PasswordChange{Current: creds(password, 1), New: creds(next, 2), Tried: tried,
		Begin: func(context.Context) error { return nil }}
}

// TestPasswordOfEveryShape: with one log-in that is wrong at most, and none on the straight way.
func TestPasswordOfEveryShape(t *testing.T) {
	t.Parallel()
	for name, shape := range lab.Shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shape.Slow /= 5
			r := startShape(t, newChassis(true), shape)
			r.Misbehave(lab.Faults{LockAfter: 2})
			s := newSafe(password)
			p := newProvider(t, s, func(c *bmc.Config) { c.Timeout = 4 * time.Second })
			proof, err := p.ChangePassword(t.Context(), target(r.Endpoint()), changeTo(newPassword, false))
			if shape.Accounts.None {
				if !errors.Is(err, effect.ErrUnsupported) || !r.Takes(password) {
					t.Errorf("without an account service: %v", err)
				}
				return
			}
			if err != nil || proof.At.IsZero() || proof.Protocol != bmc.Redfish || !r.Takes(newPassword) {
				t.Fatalf("changed: %+v, %v", proof, err)
			}
			if n := r.Counts(); n.WrongPasswords != 0 || n.Open != 0 || n.PasswordChanges != 1 {
				t.Errorf("counts %+v", n)
			}
			if _, err := p.PowerState(t.Context(), target(r.Endpoint())); !parked(err) {
				t.Errorf("the old password: %v", err)
			}
			s.set(newPassword)
			if state, err := p.PowerState(t.Context(), target(r.Endpoint())); err != nil || state != provider.PowerOn {
				t.Errorf("with the new password: %v, %v", state, err)
			}
			if n := r.Counts(); n.WrongPasswords != 0 {
				t.Errorf("the old one was sent: %+v", n)
			}
		})
	}
}

func parked(err error) bool { return err != nil && failure.From(err).Reason == "BMC_AUTH_FAILED" }

// TestPasswordWhoseEndIsOpen: the next attempt finds out, with one wrong log-in at most.
func TestPasswordWhoseEndIsOpen(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		changed bool // before the attempt
		wrong   int
		changes int
	}{"it was done": {true, 0, 0}, "it was not done": {false, 1, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startShape(t, newChassis(true), lab.Shape{})
			if tc.changed {
				r.SetPassword(newPassword)
			}
			p := newProvider(t, newSafe(password), nil)
			proof, err := p.ChangePassword(t.Context(), target(r.Endpoint()), changeTo(newPassword, true))
			if err != nil || proof.At.IsZero() || !r.Takes(newPassword) {
				t.Fatalf("%+v, %v", proof, err)
			}
			if n := r.Counts(); n.WrongPasswords != tc.wrong || n.PasswordChanges != tc.changes {
				t.Errorf("counts %+v", n)
			}
		})
	}
}

// TestPasswordCutOff: a connection that is cut beside the change. It is found out at once what the BMC takes.
func TestPasswordCutOff(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cut     lab.Cut
		changed bool
	}{"before": {lab.CutBefore, false}, "after": {lab.CutAfter, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startShape(t, newChassis(true), lab.Shape{})
			r.Misbehave(lab.Faults{PasswordCut: tc.cut})
			p := newProvider(t, newSafe(password), nil)
			_, err := p.ChangePassword(t.Context(), target(r.Endpoint()), changeTo(newPassword, false))
			if (err == nil) != tc.changed || r.Takes(newPassword) != tc.changed || r.Takes(password) == tc.changed {
				t.Fatalf("cut off: %v", err)
			}
			if err != nil {
				if e := failure.From(err); e.Reason != "BMC_UNREACHABLE" {
					t.Errorf("not changed: %v", err)
				}
				_, err = p.ChangePassword(t.Context(), target(r.Endpoint()), changeTo(newPassword, true))
			}
			if n := r.Counts(); err != nil || !r.Takes(newPassword) || n.WrongPasswords > 1 {
				t.Errorf("then: %v, %+v", err, n)
			}
		})
	}
}

// TestPasswordThatIsRefused: the old one is in force, no text contains the new one, and it is known to be unused.
func TestPasswordThatIsRefused(t *testing.T) {
	t.Parallel()
	const plain = "onlyLetters12345"
	for name, tc := range map[string]struct {
		accounts lab.Accounts
		faults   lab.Faults
		reason   string
		wrong    int
	}{
		"by the policy":            {lab.Accounts{Punctuation: true}, lab.Faults{}, "BMC_PASSWORD_REFUSED", 0},
		"without a word":           {lab.Accounts{Punctuation: true, Refused: 500}, lab.Faults{}, "EXECUTION_FAILED", 1},
		"accepted and not changed": {lab.Accounts{}, lab.Faults{Liar: true}, "BMC_NO_EFFECT", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startShape(t, newChassis(true), lab.Shape{Accounts: tc.accounts})
			r.Misbehave(tc.faults)
			p := newProvider(t, newSafe(password), nil)
			_, err := p.ChangePassword(t.Context(), target(r.Endpoint()), changeTo(plain, false))
			if err == nil || failure.From(err).Reason != tc.reason || strings.Contains(err.Error(), plain) {
				t.Errorf("refused: %v", err)
			}
			if n := r.Counts(); n.WrongPasswords != tc.wrong || !r.Takes(password) {
				t.Errorf("counts %+v", n)
			}
			if _, err := p.PowerState(t.Context(), target(r.Endpoint())); err != nil {
				t.Errorf("the old password: %v", err)
			}
		})
	}
}

// TestPasswordThatNobodyKnows: the BMC takes neither password. Each is tried once, also when the change is asked for
// again.
func TestPasswordThatNobodyKnows(t *testing.T) {
	t.Parallel()
	r := startShape(t, newChassis(true), lab.Shape{})
	r.SetPassword("by somebody else")
	p := newProvider(t, newSafe(password), nil)
	for range 3 {
		if _, err := p.ChangePassword(t.Context(), target(r.Endpoint()), changeTo(newPassword, true)); !parked(err) {
			t.Errorf("refused: %v", err)
		}
	}
	if n := r.Counts(); n.WrongPasswords != 2 {
		t.Errorf("counts %+v", n)
	}
	r.SetPassword(newPassword)
	p.Unpark(r.Endpoint(), time.Now())
	if _, err := p.ChangePassword(t.Context(), target(r.Endpoint()), changeTo(newPassword, true)); err != nil {
		t.Errorf("after an admin had it asked again: %v", err)
	}
}

// TestPasswordOfAnAccountThatIsNotThere: an account that is not found is an error, and nothing is written to the BMC.
func TestPasswordOfAnAccountThatIsNotThere(t *testing.T) {
	t.Parallel()
	r := startShape(t, newChassis(true), lab.IDRAC9)
	p := newProvider(t, newSafe(password), nil)
	c := changeTo(newPassword, false)
	c.New.Username = "directory-user"
	_, err := p.ChangePassword(t.Context(), target(r.Endpoint()), c)
	if !errors.Is(err, effect.ErrUnsupported) || !strings.Contains(err.Error(), "directory-user") || !r.Takes(password) {
		t.Errorf("%v", err)
	}
}

// TestPasswordOverIPMI changes it at OpenIPMI's simulator, and where the Redfish service has no accounts.
func TestPasswordOverIPMI(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]string{"16 bytes": newPassword, "too long": newPassword + "-long"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim := startIPMI(t, newChassis(true))
			s := newSafe(password)
			p := newProvider(t, s, nil)
			proof, err := p.ChangePassword(t.Context(), target(sim.Endpoint()), changeTo(next, false))
			if name == "too long" {
				if !errors.Is(err, effect.ErrUnsupported) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || proof.Protocol != bmc.IPMI {
				t.Fatalf("%+v, %v", proof, err)
			}
			s.set(next)
			if state, err := p.PowerState(t.Context(), target(sim.Endpoint())); err != nil || state != provider.PowerOn {
				t.Errorf("with the new password: %v, %v", state, err)
			}
		})
	}
}
