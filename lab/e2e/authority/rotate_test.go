package authority

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/state"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// fleet is a controller and agents, all processes.
type fleet struct {
	t *testing.T
	c *harness.ControllerProcess
	// working are rebooted all the time, off is not there during the rotation.
	working []*harness.Machine
	off     *harness.Machine
}

// dies starts the controller with a failpoint that kills it, and waits until it has.
func (f *fleet) dies(point string) {
	f.t.Helper()
	f.c.Launch(point + "=kill@1")
	f.gone(point)
}

func (f *fleet) gone(point string) {
	f.t.Helper()
	select {
	case <-f.c.Process.Gone():
	case <-time.After(rig.Soon):
		f.t.Fatalf("the controller does not die at %s", point)
	}
	if !f.c.Process.Killed() {
		f.t.Fatalf("the controller was not killed at %s", point)
	}
}

func (f *fleet) authority() *baremetalv1.Authority {
	f.t.Helper()
	return harness.Must(f.t, f.c.CA().GetAuthority, &baremetalv1.GetAuthorityRequest{})
}

// load reboots every machine, one reboot after the other, until the end.
func (f *fleet) load() (end func() (reboots int64)) {
	var wg sync.WaitGroup
	var n atomic.Int64
	stop := make(chan struct{})
	for _, m := range f.working {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				op := rig.Reboot(f.t, f.c.Client, m.ID, fmt.Sprintf("r-%d", i), rig.PatientTime)
				if got := f.c.Wait(op.GetOperationId(), 2*rig.Soon); got.GetPhase() != rig.Succeeded {
					f.t.Errorf("reboot %d of %s: %v", i, m.ID, got)
				}
				n.Add(1)
			}
		})
	}
	return func() int64 {
		close(stop)
		wg.Wait()
		return n.Load()
	}
}

// says returns the fleet listener's error for a certificate: nil where it accepts it.
func (f *fleet) says(cert tls.Certificate, roots *x509.CertPool) error {
	// As an agent does: whatever CAs the listener asks for.
	own := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	d := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, NextProtos: []string{"h2"},
		GetClientCertificate: own}}
	conn, err := d.DialContext(context.Background(), "tcp", f.c.Fleet.Address())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

func roots(t *testing.T, pemText []byte) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pemText) {
		t.Fatal("no certificate")
	}
	return pool
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, c: harness.NewControllerProcess(t)}
	f.c.Start("")
	for i := range 5 {
		m := f.c.NewMachine(t, harness.MachineOptions{Stopped: true, Site: i == 3, Delay: 50 * time.Millisecond})
		p := m.AgentProcess("")
		m.WaitConnected()
		if i == 4 {
			p.Terminate()
			f.off = m
			continue
		}
		rig.Maintenance(t, f.c.Client, m.ID)
		f.working = append(f.working, m)
	}
	return f
}

// TestRotationUnderLoad rotates the CA while every machine is rebooted again and again. The controller is killed at
// every point of the rotation, and one agent is off all the time.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	c := f.c
	oldRoots, err := os.ReadFile(c.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	old := rig.AgentCert(t, f.working[0])
	// A token of before the rotation, which names the old root by its hash.
	late := c.NewMachine(t, harness.MachineOptions{Stopped: true})
	end := f.load()

	c.Process.Kill()
	c.Start("authority.after-rotate=kill@1")
	rotated := make(chan *baremetalv1.Authority, 1)
	go func() {
		got, err := harness.Call(t, c.CA().RotateAuthority, &baremetalv1.RotateAuthorityRequest{Comment: "test"})
		if err != nil {
			t.Errorf("rotate: %v", err)
		}
		rotated <- got
	}()
	f.gone("authority.after-rotate")
	f.dies("ca.next-half-made")
	f.dies("ca.next-before-rename")
	c.Start("")
	if n := len((<-rotated).GetGenerations()); n != 2 {
		t.Fatalf("%d generations", n)
	}
	testkit.Eventually(t, rig.Soon, func() bool { return int(f.authority().GetHolderCount()) <= len(f.working) },
		"no agent renews")
	c.Process.Kill()
	c.Start("")

	testkit.Eventually(t, rig.Soon, func() bool {
		a := f.authority()
		return a.GetHolderCount() == 1 && a.GetHolders()[0].GetMachineId() == f.off.ID
	}, "the holders of old certificates are not the one that is off: %v", rig.Stringer(func() string {
		return fmt.Sprint(f.authority().GetHolders())
	}))
	_, err = harness.Call(t, c.CA().WithdrawAuthority, &baremetalv1.WithdrawAuthorityRequest{Generation: 1})
	if !harness.HasReason(err, "AUTHORITY_IN_USE") || !strings.Contains(err.Error(), f.off.ID) {
		t.Fatalf("withdrawn over %s: %v", f.off.ID, err)
	}
	newRoots := roots(t, f.authority().GetGenerations()[0].GetRootPem())
	for name, pool := range map[string]*x509.CertPool{"old": roots(t, oldRoots), "new": newRoots} {
		// An agent keeps both certificates until a session on the next one was welcomed; the first is refused by then.
		testkit.Eventually(t, rig.Soon, func() bool { return f.says(rig.AgentCert(t, f.working[1]), pool) == nil },
			"during the overlap, who trusts the %s root is refused", name)
	}

	c.Process.Kill()
	c.Start("authority.after-withdraw=kill@1")
	withdrawn := make(chan *baremetalv1.Authority, 1)
	go func() {
		got, err := harness.Call(t, c.CA().WithdrawAuthority,
			&baremetalv1.WithdrawAuthorityRequest{Generation: 1, LeaveBehind: []string{f.off.ID}})
		if err != nil {
			t.Errorf("withdraw: %v", err)
		}
		withdrawn <- got
	}()
	f.gone("authority.after-withdraw")
	c.Start("")
	if g := (<-withdrawn).GetGenerations()[1]; g.GetWithdrawnAt() == nil || g.GetVouchedUntil() == nil {
		t.Fatalf("not withdrawn: %v", g)
	}
	t.Logf("%d reboots", end())

	if err := f.says(old, newRoots); err == nil || !strings.Contains(err.Error(), "unknown certificate authority") {
		t.Errorf("an old certificate: %v", err)
	}
	f.off.AgentProcess("")
	late.AgentProcess("")
	f.connected(append(f.working, f.off, late))
	if n := f.authority().GetHolderCount(); n != 0 {
		t.Errorf("%d hold a certificate of the old CA", n)
	}
	for _, m := range f.working {
		rig.Clean(t, m.WaitQuiet(rig.Soon))
	}
}

// connected waits until all are, with a certificate of the new CA and its root alone.
func (f *fleet) connected(all []*harness.Machine) {
	f.t.Helper()
	fresh := roots(f.t, f.authority().GetTrustBundlePem())
	for _, m := range all {
		m.WaitConnected()
		testkit.Eventually(f.t, rig.Soon, func() bool {
			trusted, err := pki.LoadCerts(m.StateDir + "/trust.pem")
			if err != nil || len(trusted) != 1 {
				return false
			}
			creds, err := state.Dir(m.StateDir).Credentials()
			if err != nil {
				return false
			}
			chain := x509.NewCertPool()
			for _, c := range creds.Chain[1:] {
				chain.AddCert(c)
			}
			_, err = creds.Leaf().Verify(x509.VerifyOptions{Roots: fresh, Intermediates: chain,
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
			return err == nil
		}, "the agent of %s has not left the old CA", m.ID)
	}
}

// TestARotationWithoutTheRootsKeyIsRefused: without the key the new CA cannot be certified.
func TestARotationWithoutTheRootsKeyIsRefused(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{Stopped: true})
	c.Start()
	c.WaitReady()
	c.Stop()
	if err := os.Remove(c.Data + "/ca/v1/root.key"); err != nil {
		t.Fatal(err)
	}
	c.Start()
	c.WaitReady()
	_, err := harness.Call(t, c.CA().RotateAuthority, &baremetalv1.RotateAuthorityRequest{})
	if !harness.HasReason(err, "AUTHORITY_KEY_MISSING") {
		t.Errorf("got %v", err)
	}
	a := harness.Must(t, c.CA().GetAuthority, &baremetalv1.GetAuthorityRequest{})
	if len(a.GetGenerations()) != 1 {
		t.Errorf("%d generations", len(a.GetGenerations()))
	}
}

// TestADatabaseThatHasForgottenTheRotation: the controller's disk knows what the database has forgotten, and agents
// that trust the new root alone are not locked out.
func TestADatabaseThatHasForgottenTheRotation(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	harness.Must(t, c.CA().RotateAuthority, &baremetalv1.RotateAuthorityRequest{})
	testkit.Eventually(t, rig.Soon, func() bool {
		return harness.Must(t, c.CA().GetAuthority, &baremetalv1.GetAuthorityRequest{}).GetHolderCount() == 0
	}, "the agent does not renew")
	before := harness.Must(t, c.CA().WithdrawAuthority, &baremetalv1.WithdrawAuthorityRequest{Generation: 1})
	c.Stop()
	c.ForgetAuthorities(t)
	c.Start()
	c.WaitReady()
	m.WaitConnected()
	after := harness.Must(t, c.CA().GetAuthority, &baremetalv1.GetAuthorityRequest{})
	if len(after.GetGenerations()) != 2 ||
		after.GetGenerations()[0].GetRootHash() != before.GetGenerations()[0].GetRootHash() {
		t.Errorf("generations %v, were %v", after.GetGenerations(), before.GetGenerations())
	}
}
