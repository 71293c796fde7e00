package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// memory is a database in memory.
type memory struct {
	mu       sync.Mutex
	tokens   []access.StoredToken
	version  int64
	away     bool
	used     map[string]time.Time
	files    []access.FileChange
	refusals map[refusalKey]int64
	// batches are the numbers of those that were stored. lose takes the answers to the next of them away.
	batches  map[int64]bool
	lose     int
	bindings []access.RoleBinding
	revoked  map[string]time.Time
	makers   map[string]access.Person
	sessions []access.Seen
}

func (m *memory) RoleBindings(context.Context, time.Time) ([]access.RoleBinding, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.bindings), nil
}

func (m *memory) RevokedSessions(context.Context, time.Time) (map[string]time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.revoked), nil
}

func (m *memory) RecordSessions(_ context.Context, all []access.Seen) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return errAway
	}
	m.sessions = append(m.sessions, all...)
	return nil
}

var errAway = errors.New("away")

func (m *memory) APITokens(_ context.Context, known int64, _ time.Time) ([]access.StoredToken, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return nil, 0, errAway
	}
	if known == m.version {
		return nil, known, nil
	}
	return slices.Clone(m.tokens), m.version, nil
}

func (m *memory) UsedAPITokens(_ context.Context, used map[string]time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used = used
	return nil
}

func (m *memory) RecordTokenFile(_ context.Context, c access.FileChange) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return errAway
	}
	m.files = append(m.files, c)
	return nil
}

func (m *memory) CountRefusals(_ context.Context, b access.RefusalBatch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return errAway
	}
	if !m.batches[b.Number] {
		for _, r := range b.Refusals {
			m.refusals[refusalKey{r.Actor, r.Address, r.Method}] += r.Count
		}
	}
	m.batches[b.Number] = true
	if m.lose > 0 {
		m.lose--
		return errAway
	}
	return nil
}

func (m *memory) TokenMakers(context.Context, time.Time) (map[string]access.Person, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.makers), nil
}

func (m *memory) ChainRefusals(context.Context) error { return nil }

func (m *memory) set(tokens ...access.StoredToken) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tokens, m.version = tokens, m.version+1
}

func followed(t *testing.T) (*Tokens, *memory, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	_, hash := NewToken()
	if err := os.WriteFile(path, []byte("ops admin "+hash+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := OpenTokens(path, testkit.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	m := &memory{refusals: map[refusalKey]int64{}, batches: map[int64]bool{}}
	ctx, cancel := context.WithCancel(t.Context())
	group, _ := task.New(ctx)
	group.Go("follow", func(ctx context.Context) error { return tokens.Follow(ctx, Source{m, m, m}, clock.Real()) })
	t.Cleanup(func() {
		cancel()
		if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return tokens, m, path
}

// A token of the database opens calls and streams; its revocation and its expiry end them within 2 s.
func TestRevocationAndExpiryEndStreams(t *testing.T) {
	tokens, m, _ := followed(t)
	secret, _ := NewToken()
	tok := access.StoredToken{ID: "tk-1", Name: "ci", Scope: access.ScopeOperate, Hash: sha256.Sum256([]byte(secret)),
		ExpiresAt: time.Now().Add(time.Hour)}
	open := func() context.Context {
		t.Helper()
		var opened []context.Context
		testkit.Eventually(t, 2*time.Second, func() bool {
			got, caller, done, err := tokens.admit(t.Context(), secret, access.ScopeRead)
			if err != nil {
				return false
			}
			t.Cleanup(done)
			opened = append(opened, got)
			return caller.Name == "ci" && caller.TokenID == "tk-1"
		}, "the token is not known")
		return opened[len(opened)-1]
	}
	ends := func(ctx context.Context, what string) {
		t.Helper()
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
			t.Errorf("%s: the stream goes on after 2 s", what)
		}
		if _, err := tokens.authenticate(secret, access.ScopeRead); failure.ReasonOf(err) != ReasonBearerInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	m.set(tok)
	ctx := open()
	m.set()
	ends(ctx, "revoked")
	tok.ExpiresAt = time.Now().Add(1500 * time.Millisecond)
	m.set(tok)
	ends(open(), "expired")
	if _, err := tokens.authenticate("ingotb_guess", access.ScopeRead); failure.ReasonOf(err) != ReasonBearerInvalid {
		t.Error(err)
	}
}

// While the database is away, the tokens that were read stay in force, and pending records wait.
func TestTokenFileChangesReachTheAuditLog(t *testing.T) {
	tokens, m, path := followed(t)
	m.mu.Lock()
	m.away = true
	m.mu.Unlock()
	if _, err := AddToken(path, "ci", access.ScopeOperate); err != nil {
		t.Fatal(err)
	}
	if err := tokens.Reload(); err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	m.away = false
	m.mu.Unlock()
	testkit.Eventually(t, 3*time.Second, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.files) == 2
	}, "the change is not written down")
	if a, b := m.files[0], m.files[1]; !a.Start || a.Added[0] != "ops admin" || b.Start || len(b.Added) != 1 ||
		b.Added[0] != "ci operate" {
		t.Errorf("%+v", m.files)
	}
}

// A refusal for lack of rights is stored before its caller is answered. It counts once for each actor, address and
// method, also where the answer of the database is lost.
func TestRefusalsAreStoredBeforeTheAnswer(t *testing.T) {
	tokens, m, _ := followed(t)
	secret, _ := NewToken()
	m.set(access.StoredToken{ID: "tk-1", Name: "reader", Scope: access.ScopeRead, Hash: sha256.Sum256([]byte(secret)),
		ExpiresAt: time.Now().Add(time.Hour)})
	guard := NewGuard(GuardConfig{Listener: Frontpage, Tokens: tokens})
	const method = "/baremetal.v1.MachineService/RebootMachine"
	call := func() error {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+secret))
		_, err := guard.Unary()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method},
			func(context.Context, any) (any, error) { return nil, nil })
		return err
	}
	stored := func() int64 {
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.refusals) > 1 {
			t.Errorf("%v", m.refusals)
		}
		return m.refusals[refusalKey{"reader", "", method}]
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return failure.ReasonOf(call()) == access.ReasonScopeTooSmall },
		"the token is not known")
	for i := range int64(20) {
		if n := stored(); n != i+1 {
			t.Fatalf("%d are stored after %d answers", n, i+1)
		}
		_ = call()
	}
	m.mu.Lock()
	m.lose = 2
	m.mu.Unlock()
	for range 10 {
		_ = call()
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return stored() >= 31 }, "the refusals are not stored")
	_ = call()
	testkit.Eventually(t, 10*time.Second, func() bool { return stored() >= 32 }, "the refusals are not stored")
	if n := stored(); n != 32 {
		t.Errorf("%d are stored of 32", n)
	}
}
