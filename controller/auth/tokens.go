package auth

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/ingot-metal/ingot/internal/failure"
)

// The reasons of this package, as in baremetal.v1.Reason.
const (
	ReasonBearerMissing       = "BEARER_MISSING"
	ReasonBearerInvalid       = "BEARER_INVALID"
	ReasonScopeTooSmall       = "SCOPE_TOO_SMALL"
	ReasonCertificateRequired = "CERTIFICATE_REQUIRED"
)

// Tokens are the bearer tokens in force and the streams that were let in by them.
type Tokens struct {
	path   string
	logger *slog.Logger

	mu      sync.Mutex
	set     tokenSet
	streams map[*admission]struct{}
}

// admission is an open stream and what let it in.
type admission struct {
	hash tokenHash
	need Scope
	end  context.CancelCauseFunc
}

// OpenTokens reads the file; it must be there and without faults.
func OpenTokens(path string, logger *slog.Logger) (*Tokens, error) {
	t := &Tokens{path: path, logger: logger, streams: map[*admission]struct{}{}}
	set, err := readTokens(path)
	if err != nil {
		return nil, err
	}
	t.set = set
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

// Reload reads the file again. With any fault the tokens stay as they are; the log says why, and so does the error.
func (t *Tokens) Reload() error {
	set, err := readTokens(t.path)
	if err != nil {
		t.logger.Error("bearer tokens not reloaded, the old ones stay in force", "error", err)
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set = set
	ended := 0
	for a := range t.streams {
		if _, err := t.check(a.hash, a.need); err != nil {
			a.end(err)
			ended++
		}
	}
	t.logger.Info("bearer tokens reloaded", "tokens", len(set), "streams_kept", len(t.streams)-ended, "streams_ended", ended)
	return nil
}

// authenticate says who holds the token, if it is good for need.
func (t *Tokens) authenticate(secret string, need Scope) (Caller, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.check(sha256.Sum256([]byte(secret)), need)
}

// check needs t.mu.
func (t *Tokens) check(h tokenHash, need Scope) (Caller, error) {
	tok, ok := t.set.find(h)
	if !ok {
		return Caller{}, failure.Unauthenticated(ReasonBearerInvalid, "the token is not known")
	}
	if !tok.scope.Covers(need) {
		return Caller{}, failure.Denied(ReasonScopeTooSmall, "this needs scope %s, the token has %s", need, tok.scope).
			WithMeta("scope", tok.scope.String()).WithMeta("required_scope", need.String())
	}
	return Caller{Name: tok.name, Scope: tok.scope}, nil
}

// admit is authenticate for a stream: its context ends, with the reason as its cause, as soon as a reload takes the
// token away. done must be called when the stream has ended.
func (t *Tokens) admit(ctx context.Context, secret string, need Scope) (_ context.Context, _ Caller, done func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := &admission{hash: sha256.Sum256([]byte(secret)), need: need}
	caller, err := t.check(a.hash, need)
	if err != nil {
		return nil, Caller{}, nil, err
	}
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
