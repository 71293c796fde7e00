package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// Now is a whole number of microseconds, as Postgres keeps them.
func Now() time.Time { return time.Now().Truncate(time.Microsecond) }

func Register(t testing.TB, s *store.Store, id string, macs ...string) *baremetalv1.Machine {
	t.Helper()
	m, err := s.Machines.Register(t.Context(), &baremetalv1.Machine{
		MachineId: id, Spec: &baremetalv1.MachineSpec{Provider: "fake", MacAddresses: macs},
	}, "tester", Now())
	if err != nil {
		t.Fatalf("register: %v", err)
	}
	return m
}

// signer counts what it signs.
type signer struct{ calls chan string }

func NewSigner() *signer { return &signer{calls: make(chan string, 10_000)} }

func (g *signer) Sign(_ context.Context, agentID string) (*agentstore.Signed, error) {
	g.calls <- agentID
	return &agentstore.Signed{
		Fingerprint: "fp-" + agentID + fmt.Sprint(len(g.calls)), Serial: "1", ChainPEM: []byte("chain of " + agentID),
		NotBefore: Now(), NotAfter: Now().Add(24 * time.Hour),
	}, nil
}

// SignFor certifies an installer.
func (g *signer) SignFor(ctx context.Context, agentID string, life time.Duration) (*agentstore.Signed, error) {
	c, err := g.Sign(ctx, agentID)
	if err == nil {
		c.NotAfter = Now().Add(life)
	}
	return c, err
}

func (g *signer) Count() int { return len(g.calls) }

func Token(t testing.TB, s *store.Store, n agentstore.NewToken) agentstore.NewToken {
	t.Helper()
	if n.Role == "" {
		n.Role = "host"
	}
	if n.ExpiresAt.IsZero() {
		n.ExpiresAt = Now().Add(time.Hour)
	}
	n.Secret, n.Actor = "secret of "+n.TokenID, "tester"
	if _, err := s.Agents.IssueToken(t.Context(), n, Now()); err != nil {
		t.Fatalf("issue token: %v", err)
	}
	return n
}

func EnrollWith(n agentstore.NewToken, key string) agentstore.EnrollRequest {
	return agentstore.EnrollRequest{TokenID: n.TokenID, Secret: n.Secret, PublicKeyDigest: []byte(key)}
}

// Enrolled is an agent with its certificate.
type Enrolled struct {
	ID, Machine, Fingerprint string
}

func Enrol(t testing.TB, s *store.Store, n agentstore.NewToken) Enrolled {
	t.Helper()
	n = Token(t, s, n)
	var fp string
	g := NewSigner()
	e, err := s.Agents.Enroll(t.Context(), EnrollWith(n, "key of "+n.TokenID),
		func(ctx context.Context, id string) (*agentstore.Signed, error) {
			c, err := g.Sign(ctx, id)
			fp = c.Fingerprint
			return c, err
		}, Now())
	if err != nil {
		t.Fatalf("enrol: %v", err)
	}
	return Enrolled{e.AgentID, n.MachineID, fp}
}

func (a Enrolled) Hello(state, boot string) sessionstore.Hello {
	return sessionstore.Hello{
		AgentID: a.ID, Fingerprint: a.Fingerprint, SessionID: "s-" + state + boot + fmt.Sprint(time.Now().UnixNano()),
		ControllerID: "ctl",
		Capabilities: []string{"reboot", "netboot", "reconfig", "provider:fake"}, BootID: boot, HardwareFingerprint: "hw",
		StateID: state,
	}
}

func Open(t testing.TB, s *store.Store, h sessionstore.Hello) *sessionstore.Opened {
	t.Helper()
	var o *sessionstore.Opened
	err := Each(t, s, func() (err error) {
		o, err = s.Sessions.OpenSession(t.Context(), h, Now())
		return err
	})
	if err != nil {
		t.Fatalf("open session: %v", err)
	}
	return o
}

// Arrived lets the machine's agent report an inventory with these MAC addresses, and the node pass its health checks.
func (a Enrolled) Arrived(t testing.TB, s *store.Store, macs ...string) {
	t.Helper()
	a.arrivedAs(t, s, "st-1", macs...)
}

// arrivedAs is arrived under a memory of the agent.
func (a Enrolled) arrivedAs(t testing.TB, s *store.Store, memory string, macs ...string) {
	t.Helper()
	nics := []string{}
	for i, mac := range macs {
		nics = append(nics, fmt.Sprintf(`{"name": "eth%d", "mac": %q}`, i, mac))
	}
	doc := `{"system": {"serial": "sn-1"}, "nics": [` + strings.Join(nics, ", ") + `]}`
	k := sessionstore.EventKey{AgentID: a.ID, StateID: memory, Seq: uint64(time.Now().UnixNano())}
	if err := s.Sessions.InventoryEvent(t.Context(), k, a.Machine, "hash of "+doc, []byte(doc), false, Now()); err != nil {
		t.Fatalf("report an inventory: %v", err)
	}
	if _, err := s.NodeStates.AdmitHealthy(t.Context(), Now()); err != nil {
		t.Fatalf("check health: %v", err)
	}
}

// Live is a machine in maintenance with a live agent of its own.
func Live(t testing.TB, s *store.Store, machineID string) Enrolled {
	t.Helper()
	Register(t, s, machineID)
	a := Enrol(t, s, agentstore.NewToken{TokenID: "t-" + machineID, MachineID: machineID})
	Lease(t, s)
	Open(t, s, a.Hello("st-1", "boot-1"))
	Maintenance(t, s, machineID)
	return a
}

// Simulated connects a simulated agent of each machine, which does everything by itself.
func Simulated(t testing.TB, s *store.Store, machineIDs ...string) {
	t.Helper()
	Lease(t, s)
	for _, id := range machineIDs {
		h := Enrol(t, s, agentstore.NewToken{TokenID: "t-" + id, MachineID: id}).Hello("st-"+id, "boot-"+id)
		h.Capabilities = append(h.Capabilities, "repave", "erase", "reset_devices", "test_hardware")
		h.Simulated = true
		Open(t, s, h)
	}
}

func Lease(t testing.TB, s *store.Store) {
	t.Helper()
	if err := s.Sessions.RenewLease(t.Context(), "ctl", "test", Now().Add(time.Hour), Now()); err != nil {
		t.Fatal(err)
	}
}

func Maintenance(t testing.TB, s *store.Store, machineID string) {
	t.Helper()
	op := Start(t, s, operationstore.StartRequest{MachineID: machineID, RequestID: "enter", Type: fleet.EnterMaintenance})
	if a := Decide(t, s, op.GetOperationId(), operation.Evaluate{}); a.Phase != operation.Succeeded {
		t.Fatalf("enter maintenance: %s", a.Phase)
	}
}

func Start(t testing.TB, s *store.Store, r operationstore.StartRequest) *baremetalv1.Operation {
	t.Helper()
	r.Actor = "tester"
	var op *baremetalv1.Operation
	err := Each(t, s, func() (err error) {
		op, _, err = s.Operations.Start(t.Context(), r, Now())
		return err
	})
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	return op
}

// Rebooting is a machine whose reboot has been sent to its agent.
func Rebooting(t testing.TB, s *store.Store, machineID string) (Enrolled, string, *operation.Command) {
	t.Helper()
	a := Live(t, s, machineID)
	op := Start(t, s, operationstore.StartRequest{MachineID: machineID, RequestID: "reboot", Type: fleet.Reboot})
	d := Decide(t, s, op.GetOperationId(), operation.Evaluate{})
	if d.Command == nil || d.Command.State != operation.Sent {
		t.Fatalf("the first look made %+v", d.Command)
	}
	return a, op.GetOperationId(), d.Command
}

// AsksBefore are the numbers below one: the asks that a memory knows of that has counted by one.
func AsksBefore(seq uint64) []uint64 {
	var out []uint64
	for n := uint64(1); n < seq; n++ {
		out = append(out, n)
	}
	return out
}

func Ask(a Enrolled, c *operation.Command, seq uint64, epoch int64) operation.GrantAsked {
	return operation.GrantAsked{
		CommandID: c.ID, AgentID: a.ID, StateID: c.ExecutorStateID, BootID: "boot-1", Seq: seq, Digest: c.Digest,
		Epoch: epoch, Earlier: AsksBefore(seq),
	}
}

func Decide(t testing.TB, s *store.Store, operationID string, e operation.Event) *operationstore.Applied {
	t.Helper()
	var a *operationstore.Applied
	err := Each(t, s, func() (err error) {
		a, err = s.Operations.Decide(t.Context(), operationID, e, Now())
		return err
	})
	if err != nil {
		t.Fatalf("decide %T: %v", e, err)
	}
	return a
}

func Machine(t testing.TB, s *store.Store, id string) *baremetalv1.Machine {
	t.Helper()
	m, err := s.Machines.KnownMachine(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func Condition(m *baremetalv1.Machine, c fleet.ConditionType) *baremetalv1.Condition {
	for _, have := range m.GetStatus().GetConditions() {
		if have.GetType() == string(c) && have.GetStatus() {
			return have
		}
	}
	return nil
}

// WantReason fails unless err is a failure of this reason.
func WantReason(t testing.TB, err error, reason string) *failure.Error {
	t.Helper()
	var f *failure.Error
	if !errors.As(err, &f) || f.Reason != reason {
		t.Fatalf("got %v, want %s", err, reason)
	}
	return f
}

// Together runs fn n times at once and returns the errors, by number.
func Together(t testing.TB, n int, fn func(ctx context.Context, i int) error) []error {
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

// Everything is all rows of these tables, to be compared.
func Everything(t testing.TB, s *store.Store, tables ...string) string {
	t.Helper()
	var parts []string
	for _, table := range tables {
		parts = append(parts, fmt.Sprintf("SELECT '%s: ' || coalesce(json_agg(r ORDER BY r::text)::text, '') FROM %s r",
			table, pgx.Identifier{table}.Sanitize()))
	}
	rows, err := s.DB.Pool().Query(t.Context(), strings.Join(parts, " UNION ALL "))
	if err != nil {
		t.Fatalf("read tables: %v", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("read tables: %v", err)
	}
	return strings.Join(all, "\n")
}

func Count(t testing.TB, s *store.Store, query string, args ...any) int {
	t.Helper()
	var n int
	if err := s.DB.Pool().QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func ExecSQL(t testing.TB, s *store.Store, query string, args ...any) error {
	t.Helper()
	_, err := s.DB.Pool().Exec(t.Context(), query, args...)
	return err
}

func Eventually(t testing.TB, cond func() bool, msg string, args ...any) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, cond, msg, args...)
}

func ContainsAny(s string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
}
