package auth

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
)

// The reasons of this package, as in baremetal.v1.Reason.
const (
	ReasonBearerMissing       = "BEARER_MISSING"
	ReasonBearerInvalid       = "BEARER_INVALID"
	ReasonCertificateRequired = "CERTIFICATE_REQUIRED"
	ReasonRolesChanged        = "ROLES_CHANGED"
	ReasonSignOnExpired       = "SIGN_ON_EXPIRED"
	ReasonSignOnRevoked       = "SIGN_ON_REVOKED"
)

// Tokens are the bearer tokens in force and the streams that were let in by them.
type Tokens struct {
	path   string
	logger *slog.Logger

	// kick asks Follow for a round at once.
	kick     chan struct{}
	refusals refusals

	mu      sync.Mutex
	clock   clock.Clock
	set     tokenSet
	streams map[*admission]struct{}
	// stored are the tokens of the database, as of version.
	stored  map[tokenHash]access.StoredToken
	version int64
	// used is when tokens of the database were used last, by id, as far as that is not recorded.
	used map[string]time.Time
	// changes of the file that are not in the audit log yet.
	changes []access.FileChange
	people  people
}

// admission is an open stream and what let it in.
type admission struct {
	hash   tokenHash
	need   access.Scope
	rights string
	end    context.CancelCauseFunc
}

// OpenTokens reads the file; it must be there and without faults.
func OpenTokens(path string, logger *slog.Logger) (*Tokens, error) {
	t := &Tokens{
		path: path, logger: logger, kick: make(chan struct{}, 1), clock: clock.Real(), streams: map[*admission]struct{}{},
		used: map[string]time.Time{}, version: -1,
	}
	set, err := readTokens(path)
	if err != nil {
		return nil, err
	}
	t.set = set
	t.noteChange(nil, set, true)
	return t, nil
}

func readTokens(path string) (tokenSet, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	set, err := parseTokens(file)
	if err != nil {
		return nil, fmt.Errorf("parse tokens in %s: %w", path, err)
	}
	return set, nil
}

// Reload reads the file again. With any fault the tokens stay as they are; the log and the error have the reason.
func (t *Tokens) Reload() error {
	set, err := readTokens(t.path)
	if err != nil {
		t.logger.Error("bearer tokens not reloaded, the old ones stay in force", "error", err)
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.noteChange(t.set, set, false)
	t.set = set
	ended := t.endStreams()
	t.logger.Info("bearer tokens reloaded", "tokens", len(set), "streams_kept", len(t.streams)-ended, "streams_ended",
		ended)
	return nil
}

// authenticate returns the holder of the token, and an error unless it suffices for need. The caller is known in both
// cases.
func (t *Tokens) authenticate(secret string, need access.Scope) (access.Caller, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.check(sha256.Sum256([]byte(secret)), need)
}

// Identify returns the holder of a token that may read. It may ask the provider of sign-ons.
func (t *Tokens) Identify(ctx context.Context, secret string) (access.Caller, error) {
	if err := t.meet(ctx, secret, true); err != nil {
		return access.Caller{}, err
	}
	return t.authenticate(secret, access.ScopeRead)
}

// Saw notes that a person has signed on from an address.
func (t *Tokens) Saw(c access.Caller, address string) {
	c.Address = address
	t.saw(c)
}

// check needs t.mu.
func (t *Tokens) check(h tokenHash, need access.Scope) (access.Caller, error) {
	if caller, found, err := t.people.find(h, need, t.now()); found {
		return caller, err
	}
	caller, grants, err := t.find(h)
	switch {
	case err != nil:
		return caller, err
	case grants != nil:
		return caller.With(grants, need)
	}
	if !caller.Scope.Covers(need) {
		return caller, failure.Denied(access.ReasonScopeTooSmall, "this needs scope %s, the token has %s", need,
			caller.Scope).WithMeta("scope", caller.Scope.String()).WithMeta("required_scope", need.String())
	}
	return caller, nil
}

// find looks among the tokens of the file, then among those of the database. The roles are nil where the scope counts.
// It needs t.mu.
func (t *Tokens) find(h tokenHash) (access.Caller, []access.Grant, error) {
	if tok, ok := t.set.find(h); ok {
		c := access.Caller{Name: tok.name, Scope: tok.scope}
		if tok.selection == "" {
			return c, nil, nil
		}
		return c, []access.Grant{{Role: tok.scope.Role(), Selection: tok.selection}}, nil
	}
	tok, ok := t.stored[h]
	if !ok {
		return access.Caller{}, nil, failure.Unauthenticated(ReasonBearerInvalid, "the token is not known, or was revoked")
	}
	now := t.now()
	if !tok.ExpiresAt.IsZero() && !now.Before(tok.ExpiresAt) {
		return access.Caller{}, nil, failure.Unauthenticated(
			ReasonBearerInvalid,
			"the token has expired; ask an admin for a new one",
		)
	}
	t.used[tok.ID] = now
	c := access.Caller{Name: tok.Name, Scope: tok.Scope, TokenID: tok.ID, TokenEnds: tok.ExpiresAt, Owner: tok.Owner}
	grants, err := t.people.worth(tok, now)
	return c, grants, err
}

func (t *Tokens) now() time.Time { return t.clock.Now() }

// Now is the time by which tokens expire.
func (t *Tokens) Now() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now()
}

// admit is authenticate for a stream: its context ends, with the reason as its cause, as soon as a reload takes the
// token away. done must be called when the stream has ended.
func (t *Tokens) admit(
	ctx context.Context, secret string, need access.Scope,
) (_ context.Context, _ access.Caller, done func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := &admission{hash: sha256.Sum256([]byte(secret)), need: need}
	caller, err := t.check(a.hash, need)
	if err != nil {
		return nil, caller, nil, err
	}
	a.rights = caller.Rights()
	ctx, a.end = context.WithCancelCause(ctx)
	t.streams[a] = struct{}{}
	return ctx, caller, func() { t.leave(a) }, nil
}

func (t *Tokens) leave(a *admission) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.streams, a)
	a.end(nil)
}
