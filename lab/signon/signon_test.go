package signon_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli"
	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/harness"
	"github.com/ingot-metal/ingot/lab/signon"
)

func TestMain(m *testing.M) {
	if err := testkit.OwnServer(); err != nil {
		panic(err)
	}
	code := testkit.Run(m)
	harness.RemoveBinaries()
	signon.RemoveProgram()
	os.Exit(code)
}

// rig is a controller, a provider, and a fleet of two sites.
type rig struct {
	t *testing.T
	c *harness.ControllerProcess
	p *signon.Provider
}

// newRig starts the controller, and not the provider.
func newRig(t *testing.T) *rig {
	t.Helper()
	p := signon.New(t)
	r := &rig{t: t, p: p, c: harness.NewControllerProcessWith(t, p.Config())}
	r.c.Start("")
	for _, site := range []string{"a", "b"} {
		r.c.Register(&pb.Machine{MachineId: "m-" + site, Spec: &pb.MachineSpec{Site: site}})
	}
	return r
}

func (r *rig) console() string {
	return strings.Replace(r.c.Addresses().REST, "127.0.0.1", "localhost", 1)
}

func (r *rig) browser() *signon.Browser {
	r.t.Helper()
	pem, err := os.ReadFile(r.c.CAFile())
	if err != nil {
		r.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return signon.NewBrowser(r.t, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13})
}

// desk is a person's account on a computer with the command line.
type desk struct {
	r    *rig
	env  map[string]string
	name string
}

func (r *rig) desk(name string) *desk {
	return &desk{r: r, name: name, env: map[string]string{
		"INGOT_SERVER": r.c.Front.Address(), "INGOT_CA_FILE": r.c.CAFile(),
		"INGOT_CONFIG": filepath.Join(r.t.TempDir(), "config.yaml"), "HOME": r.t.TempDir(),
	}}
}

func (d *desk) ingot(args ...string) (int, string) {
	d.r.t.Helper()
	return harness.RunIngot(d.r.t.Context(), d.env, args...)
}

// says runs a command that must succeed or fail, with a text in its output.
func (d *desk) says(good bool, want string, args ...string) {
	d.r.t.Helper()
	code, out := d.ingot(args...)
	if (code == 0) != good || !strings.Contains(out, want) {
		d.r.t.Errorf("%s: ingot %s: exit code %d, %s\nwant %q", d.name, strings.Join(args, " "), code, out, want)
	}
}

// login signs the person on by the device flow.
func (d *desk) login() {
	d.r.t.Helper()
	ctx, cancel := context.WithTimeout(d.r.t.Context(), time.Minute)
	defer cancel()
	out, code := &testkit.Buffer{}, -1
	g, ctx := task.New(ctx)
	g.Go("login", func(ctx context.Context) error {
		code = cli.Run(ctx, command.Config{
			Args: []string{"login"}, In: strings.NewReader(""), Out: out, Err: out, Clock: clock.Real(), Connect: client.Dial,
			Getenv: func(name string) string { return d.env[name] }, Version: "test",
		})
		return nil
	})
	testkit.Eventually(d.r.t, 30*time.Second, func() bool { return strings.Contains(out.String(), "confirm the code") },
		"no code: %s", out)
	d.r.p.Allow(ctx, d.r.browser(), out.String(), d.name)
	if err := g.Wait(); err != nil || code != 0 || !strings.Contains(out.String(), d.name) {
		d.r.t.Fatalf("login of %s: exit code %d, %v: %s", d.name, code, err, out)
	}
}

// file is where the sign-on is kept.
func (d *desk) file() string {
	return client.LoginPath(filepath.Dir(d.env["INGOT_CONFIG"]), d.env["INGOT_SERVER"])
}

// until has ingot list say the same until the token was renewed.
func (d *desk) until(limit time.Duration, good bool, want string) {
	d.r.t.Helper()
	before, err := os.ReadFile(d.file())
	if err != nil {
		d.r.t.Fatal(err)
	}
	testkit.Eventually(d.r.t, limit, func() bool {
		d.says(good, want, "list")
		now, err := os.ReadFile(d.file())
		return err == nil && !bytes.Equal(now, before) || d.r.t.Failed()
	}, "the token is not renewed")
}

// keepsItsSecret checks that no other user of the computer can read the sign-on.
func (d *desk) keepsItsSecret() {
	d.r.t.Helper()
	path := d.file()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		d.r.t.Errorf("%s: %v, %v", path, info, err)
	}
}

// admin runs a command with the token of an admin.
func (r *rig) admin(args ...string) string {
	r.t.Helper()
	code, out := r.c.Ingot(args...)
	if code != 0 {
		r.t.Fatalf("ingot %s: exit code %d, %s", strings.Join(args, " "), code, out)
	}
	return out
}

// late is a text that is made while something is waited for.
type late struct{ text *string }

func (l late) String() string { return *l.text }

// audited waits for a row of the audit log with an actor and texts.
func (r *rig) audited(actor, verb string, texts ...string) {
	r.t.Helper()
	seen := ""
	testkit.Eventually(r.t, 3*time.Minute, func() bool {
		rows, err := r.c.Admin().ListAuditLog(r.t.Context(), &pb.ListAuditLogRequest{Actor: actor, PageSize: 1000})
		if err != nil {
			return false
		}
		seen = ""
		for _, e := range rows.GetEntries() {
			line := e.GetVerb() + " " + e.GetTargetId() + " " + string(e.GetEventData())
			seen += line + "\n"
			hits := e.GetVerb() == verb
			for _, text := range texts {
				hits = hits && strings.Contains(line, text)
			}
			if hits {
				return true
			}
		}
		return false
	}, "no row %s of %s with %q:\n%s", verb, actor, texts, late{&seen})
}

// People sign on in both ways, have their roles on their machines and nothing else, and stand in the audit log. A
// provider that dies ends no session; a new sign-on is refused with the reason.
func TestPeopleSignOn(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	ada := r.desk("ada")
	ada.says(false, "SIGN_ON_UNAVAILABLE", "login") // the controller has started without the provider
	if at := r.browser().SignOn(ctx, r.console(), "ada"); at.Fragment != "refused=SIGN_ON_UNAVAILABLE" {
		t.Errorf("the console says %s", at)
	}
	r.p.Person("ada", "ops", "web")
	r.p.Person("eve")
	r.p.Start(r.console(), time.Hour)
	r.admin("role", "grant", "operator", "--group", "web", "--select", "site=a")
	access := pb.NewAccessServiceClient(r.c.Conn())
	testkit.Eventually(t, 20*time.Second, func() bool { // it is not asked again at once after a failure
		_, err := access.GetSignOn(ctx, &pb.GetSignOnRequest{})
		return err == nil
	}, "the provider is not found")
	ada.login()
	ada.says(true, "site=a", "whoami")
	ada.keepsItsSecret()
	ada.says(true, "m-a", "list")
	if _, out := ada.ingot("list"); strings.Contains(out, "m-b") {
		t.Errorf("ada sees what is not hers: %s", out)
	}
	ada.says(true, "", "enter-maintenance", "m-a", "--no-wait")
	ada.says(false, "OUTSIDE_SELECTION", "enter-maintenance", "m-b", "--no-wait")
	ada.says(false, "SELECTION_TOO_NARROW", "image", "list")
	ada.says(false, "SCOPE_TOO_SMALL", "role", "list")
	r.audited("ada", "SIGN_ON", `"source_address": "127.0.0.1"`, `"subject": "ada"`)
	r.audited("ada", "ENTER_MAINTENANCE", `"subject": "ada"`)

	b, eve := r.browser(), r.browser()
	if at := b.SignOn(ctx, r.console(), "ada"); at.Path != "/console/" || at.Fragment != "" {
		t.Fatalf("the console sends ada to %s", at)
	}
	if code, text := b.Session(ctx, r.console()); code != 200 || !strings.Contains(text, `"name":"ada"`) {
		t.Errorf("the session: %d %s", code, text)
	}
	if code, text := b.Get(ctx, r.console(), "/api/v1/machines"); code != 200 || !strings.Contains(text, "m-a") ||
		strings.Contains(text, "m-b") {
		t.Errorf("machines: %d %s", code, text)
	}
	if at := eve.SignOn(ctx, r.console(), "eve"); at.Fragment != "refused=NO_ROLE" {
		t.Errorf("the console sends eve to %s", at)
	}
	if code, _ := r.browser().Get(ctx, r.console(), "/console/sign-on/callback?code=x&state=y"); code != 200 {
		t.Errorf("a made-up answer: %d", code) // the page, with its reason
	}

	r.p.Kill()
	r.c.Process.Kill()
	r.c.Start("") // it has never seen the provider
	ada.says(true, "m-a", "list")
	if code, text := b.Session(ctx, r.console()); code != 200 {
		t.Errorf("the session, without the provider: %d %s", code, text)
	}
	r.desk("bob").says(false, "SIGN_ON_UNAVAILABLE", "login")
	// Refusals are chained once their minute is over, by whichever controller lives then.
	r.audited("ada", "REFUSED", "EnterMaintenance")
	r.audited("eve", "REFUSED", "NO_ROLE", `"source_address": "127.0.0.1"`)
	r.audited("unknown", "REFUSED", "BEARER_INVALID")
}

// What a group gave ends with the token, and a revoked session is not renewed.
func TestRightsEndWithTheToken(t *testing.T) {
	r := newRig(t)
	const life = 12 * time.Second
	r.p.Person("ada", "ops")
	r.p.Person("bob", "ops")
	r.p.Start(r.console(), life)
	r.admin("role", "grant", "viewer", "--group", "ops")
	ada, bob := r.desk("ada"), r.desk("bob")
	ada.login()
	bob.login()
	ada.says(true, "m-b", "list")
	r.p.Person("ada") // out of the group
	removed := time.Now()
	testkit.Eventually(t, 2*life, func() bool {
		code, out := ada.ingot("list")
		return code != 0 && strings.Contains(out, "NO_ROLE")
	}, "ada reads on")
	if took := time.Since(removed); took > life+5*time.Second {
		t.Errorf("her rights ended after %v, with tokens of %v", took, life)
	}
	bob.until(2*life, true, "m-b")
	mine := ""
	testkit.Eventually(t, 5*time.Second, func() bool {
		got, err := pb.NewAccessServiceClient(r.c.Conn()).ListSessions(t.Context(), &pb.ListSessionsRequest{All: true})
		if err != nil {
			t.Fatal(err)
		}
		if int(got.GetTotalSize()) != len(got.GetSessions()) {
			t.Fatalf("there are %d sessions in all: %v", got.GetTotalSize(), got)
		}
		his := 0
		for _, s := range got.GetSessions() {
			if s.GetName() == "bob" {
				his++
				mine = s.GetSessionId()
			}
		}
		return his == 1
	}, "bob has not one session")
	r.admin("session", "revoke", mine)
	r.audited("tester", "REVOKE_SESSION", mine)
	testkit.Eventually(t, 5*time.Second, func() bool {
		_, out := bob.ingot("list")
		return strings.Contains(out, "SIGN_ON_REVOKED")
	}, "bob reads on")
	bob.until(2*life, false, "SIGN_ON_REVOKED")
	bob.says(true, "Signed off", "logout")
	bob.says(false, "BEARER_MISSING", "list")
}

// Two people are two by their ids at the provider: a token counts as the person who made it.
func TestTwoPeopleApprove(t *testing.T) {
	r := newRig(t)
	r.p.Person("ada", "admins")
	r.p.Person("bob", "seconds")
	r.p.Start(r.console(), time.Hour)
	r.admin("role", "grant", "admin", "--group", "admins")
	r.admin("role", "grant", "approver", "--group", "seconds")
	ada, bob := r.desk("ada"), r.desk("bob")
	ada.login()
	bob.login()
	code, secret := ada.ingot("token", "create", "hers", "--scope", "admin", "--bare")
	if code != 0 {
		t.Fatal(secret)
	}
	spec := &pb.RolloutSpec{Filter: "site=a", Type: "ENTER_MAINTENANCE", RequireApproval: true}
	hers := r.c.WithToken(strings.TrimSpace(secret))
	rollouts := pb.NewRolloutServiceClient(hers.Conn())
	var made *pb.Rollout
	testkit.Eventually(t, 10*time.Second, func() bool {
		preview, err := rollouts.PreviewRollout(t.Context(), &pb.PreviewRolloutRequest{Spec: spec})
		if err != nil {
			return false
		}
		made, err = rollouts.CreateRollout(t.Context(), &pb.CreateRolloutRequest{RequestId: "1", Spec: spec,
			Digest: preview.GetDigest()})
		return err == nil
	}, "her token makes no rollout")
	approve := []string{"rollout", "approve", made.GetRolloutId(), "--digest", made.GetDigest()}
	ada.says(false, "ROLLOUT_SELF_APPROVAL", approve...)
	bob.says(false, "SCOPE_TOO_SMALL", "rollout", "cancel", made.GetRolloutId())
	bob.says(true, "", approve...)
	r.audited("bob", "APPROVE_ROLLOUT", `"subject": "bob"`)
}
