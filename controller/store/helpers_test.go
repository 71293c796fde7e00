package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// now is a whole number of microseconds, as Postgres keeps them.
func now() time.Time { return time.Now().Truncate(time.Microsecond) }

func register(t testing.TB, s *store.Store, id string, macs ...string) *baremetalv1.Machine {
	t.Helper()
	m, err := s.Register(t.Context(), &baremetalv1.Machine{
		MachineId: id, Spec: &baremetalv1.MachineSpec{Provider: "fake", MacAddresses: macs},
	}, "tester", now())
	if err != nil {
		t.Fatalf("register: %v", err)
	}
	return m
}

// signer counts what it signs.
type signer struct{ calls chan string }

func newSigner() *signer { return &signer{calls: make(chan string, 10_000)} }

func (g *signer) sign(_ context.Context, agentID string) (*store.Signed, error) {
	g.calls <- agentID
	return &store.Signed{
		Fingerprint: "fp-" + agentID + fmt.Sprint(len(g.calls)), Serial: "1", ChainPEM: []byte("chain of " + agentID),
		NotBefore: now(), NotAfter: now().Add(24 * time.Hour),
	}, nil
}

func (g *signer) count() int { return len(g.calls) }

func token(t testing.TB, s *store.Store, n store.NewToken) store.NewToken {
	t.Helper()
	if n.Role == "" {
		n.Role = "host"
	}
	if n.ExpiresAt.IsZero() {
		n.ExpiresAt = now().Add(time.Hour)
	}
	n.Secret, n.Actor = "secret of "+n.TokenID, "tester"
	if _, err := s.IssueToken(t.Context(), n, now()); err != nil {
		t.Fatalf("issue token: %v", err)
	}
	return n
}

func enrollWith(n store.NewToken, key string) store.EnrollRequest {
	return store.EnrollRequest{TokenID: n.TokenID, Secret: n.Secret, PublicKeyDigest: []byte(key)}
}

// enrolled is an agent with its certificate.
type enrolled struct {
	id, machine, fingerprint string
}

func enrol(t testing.TB, s *store.Store, n store.NewToken) enrolled {
	t.Helper()
	n = token(t, s, n)
	var fp string
	g := newSigner()
	e, err := s.Enroll(t.Context(), enrollWith(n, "key of "+n.TokenID), func(ctx context.Context, id string) (*store.Signed, error) {
		c, err := g.sign(ctx, id)
		fp = c.Fingerprint
		return c, err
	}, now())
	if err != nil {
		t.Fatalf("enrol: %v", err)
	}
	return enrolled{e.AgentID, n.MachineID, fp}
}

func (a enrolled) hello(state, boot string) store.Hello {
	return store.Hello{
		AgentID: a.id, Fingerprint: a.fingerprint, SessionID: "s-" + state + boot + fmt.Sprint(time.Now().UnixNano()), ControllerID: "ctl",
		Capabilities: []string{"reboot", "netboot", "reconfig", "provider:fake"}, BootID: boot, HardwareFingerprint: "hw", StateID: state,
	}
}

func open(t testing.TB, s *store.Store, h store.Hello) *store.Opened {
	t.Helper()
	o, err := s.OpenSession(t.Context(), h, now())
	if err != nil {
		t.Fatalf("open session: %v", err)
	}
	return o
}

// arrived lets the machine's agent report an inventory with these MAC addresses, and the node pass its health checks.
func (a enrolled) arrived(t testing.TB, s *store.Store, macs ...string) {
	t.Helper()
	a.arrivedAs(t, s, "st-1", macs...)
}

// arrivedAs is arrived under a memory of the agent.
func (a enrolled) arrivedAs(t testing.TB, s *store.Store, memory string, macs ...string) {
	t.Helper()
	nics := []string{}
	for i, mac := range macs {
		nics = append(nics, fmt.Sprintf(`{"name": "eth%d", "mac": %q}`, i, mac))
	}
	doc := `{"system": {"serial": "sn-1"}, "nics": [` + strings.Join(nics, ", ") + `]}`
	k := store.EventKey{AgentID: a.id, StateID: memory, Seq: uint64(time.Now().UnixNano())}
	if err := s.InventoryEvent(t.Context(), k, a.machine, "hash of "+doc, []byte(doc), false, now()); err != nil {
		t.Fatalf("report an inventory: %v", err)
	}
	if _, err := s.AdmitHealthy(t.Context(), now()); err != nil {
		t.Fatalf("check health: %v", err)
	}
}

// live is a machine in maintenance with a live agent of its own.
func live(t testing.TB, s *store.Store, machineID string) enrolled {
	t.Helper()
	register(t, s, machineID)
	a := enrol(t, s, store.NewToken{TokenID: "t-" + machineID, MachineID: machineID})
	lease(t, s)
	open(t, s, a.hello("st-1", "boot-1"))
	maintenance(t, s, machineID)
	return a
}

func lease(t testing.TB, s *store.Store) {
	t.Helper()
	if err := s.RenewLease(t.Context(), "ctl", "test", now().Add(time.Hour), now()); err != nil {
		t.Fatal(err)
	}
}

func maintenance(t testing.TB, s *store.Store, machineID string) {
	t.Helper()
	op := start(t, s, store.StartRequest{MachineID: machineID, RequestID: "enter", Type: fleet.EnterMaintenance})
	if a := decide(t, s, op.GetOperationId(), operation.Look{}); a.Phase != operation.Succeeded {
		t.Fatalf("enter maintenance: %s", a.Phase)
	}
}

func start(t testing.TB, s *store.Store, r store.StartRequest) *baremetalv1.Operation {
	t.Helper()
	r.Actor = "tester"
	op, _, err := s.Start(t.Context(), r, now())
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	return op
}

// rebooting is a machine whose reboot has been sent to its agent.
func rebooting(t testing.TB, s *store.Store, machineID string) (enrolled, string, *operation.Command) {
	t.Helper()
	a := live(t, s, machineID)
	op := start(t, s, store.StartRequest{MachineID: machineID, RequestID: "reboot", Type: fleet.Reboot})
	d := decide(t, s, op.GetOperationId(), operation.Look{})
	if d.Command == nil || d.Command.State != operation.Sent {
		t.Fatalf("the first look made %+v", d.Command)
	}
	return a, op.GetOperationId(), d.Command
}

// asksBefore are the numbers below one: the asks that a memory knows of that has counted by one.
func asksBefore(seq uint64) []uint64 {
	var out []uint64
	for n := uint64(1); n < seq; n++ {
		out = append(out, n)
	}
	return out
}

func ask(a enrolled, c *operation.Command, seq uint64, epoch int64) operation.GrantAsked {
	return operation.GrantAsked{
		CommandID: c.ID, AgentID: a.id, StateID: c.ExecutorStateID, BootID: "boot-1", Seq: seq, Digest: c.Digest, Epoch: epoch, Earlier: asksBefore(seq),
	}
}

func decide(t testing.TB, s *store.Store, operationID string, e operation.Event) *store.Applied {
	t.Helper()
	a, err := s.Decide(t.Context(), operationID, 0, e, now())
	if err != nil {
		t.Fatalf("decide %T: %v", e, err)
	}
	return a
}

func machine(t testing.TB, s *store.Store, id string) *baremetalv1.Machine {
	t.Helper()
	m, err := s.KnownMachine(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func condition(m *baremetalv1.Machine, c fleet.ConditionType) *baremetalv1.Condition {
	for _, have := range m.GetStatus().GetConditions() {
		if have.GetType() == string(c) && have.GetStatus() {
			return have
		}
	}
	return nil
}

// wantReason fails unless err is a failure of this reason.
func wantReason(t testing.TB, err error, reason string) *failure.Error {
	t.Helper()
	var f *failure.Error
	if !errors.As(err, &f) || f.Reason != reason {
		t.Fatalf("got %v, want %s", err, reason)
	}
	return f
}

// together runs fn n times at once and gives the errors, by number.
func together(t testing.TB, n int, fn func(ctx context.Context, i int) error) []error {
	t.Helper()
	errs := make([]error, n)
	g, ctx := task.New(t.Context())
	for i := range n {
		g.Go("caller", func(context.Context) error {
			errs[i] = fn(ctx, i)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return errs
}

// everything is all rows of these tables, to be compared.
func everything(t testing.TB, s *store.Store, tables ...string) string {
	t.Helper()
	var all bytes.Buffer
	for _, table := range tables {
		var rows string
		q := fmt.Sprintf("SELECT coalesce(json_agg(r ORDER BY r::text)::text, '') FROM %s r", pgx.Identifier{table}.Sanitize())
		if err := s.Pool().QueryRow(t.Context(), q).Scan(&rows); err != nil {
			t.Fatalf("read %s: %v", table, err)
		}
		fmt.Fprintf(&all, "%s: %s\n", table, rows)
	}
	return all.String()
}

func count(t testing.TB, s *store.Store, query string, args ...any) int {
	t.Helper()
	var n int
	if err := s.Pool().QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func execSQL(t testing.TB, s *store.Store, query string, args ...any) error {
	t.Helper()
	_, err := s.Pool().Exec(t.Context(), query, args...)
	return err
}

func eventually(t testing.TB, cond func() bool, msg string, args ...any) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, cond, msg, args...)
}

func containsAny(s string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
}
