package auth

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
)

// worth returns the roles of a token: its own, and no more than its maker has now where that is a person. They are nil
// where its scope alone counts.
func (p *people) worth(tok access.StoredToken, now time.Time) ([]access.Grant, error) {
	if !tok.OfPerson() {
		if tok.Selection == "" {
			return nil, nil
		}
		return []access.Grant{tok.Own()}, nil
	}
	maker, known := p.makers[tok.Owner]
	if !known || now.Sub(maker.IssuedAt) > p.lastSignOn {
		return nil, failure.Unauthenticated(ReasonSignOnExpired,
			"the person who made the token has not signed on for %s: the token is good again once that person signs on",
			p.lastSignOn)
	}
	out := tok.Within(maker.Grants(p.bindings, now))
	if len(out) == 0 {
		return nil, failure.Denied(access.ReasonNoRole, "%s, who made the token, has no role that it could use", maker.Name)
	}
	return out, nil
}

// Source is where the database keeps people, tokens and refused calls.
type Source struct {
	PeopleSource
	TokenSource
	RefusalSource
}

// TokenSource is where the tokens of the database come from.
type TokenSource interface {
	// APITokens returns the tokens in force and the number of their last change. It returns none where that number is
	// known.
	APITokens(ctx context.Context, known int64, now time.Time) (tokens []access.StoredToken, version int64, err error)
	// UsedAPITokens records when tokens were used last, by their ids.
	UsedAPITokens(ctx context.Context, used map[string]time.Time) error
	RecordTokenFile(ctx context.Context, c access.FileChange) error
}

// RefusalSource is where refused calls are counted, and where the audit log is.
type RefusalSource interface {
	// CountRefusals adds refused calls to those of the minute, by the database's clock.
	CountRefusals(ctx context.Context, b access.RefusalBatch) error
	// ChainRefusals writes the refusals of each minute that is over to the audit log, once.
	ChainRefusals(ctx context.Context) error
}

const (
	// followEvery is how often the database is asked for changes: a token that is revoked there ends within 2 s.
	followEvery = 500 * time.Millisecond
	// followTimeout bounds one question.
	followTimeout = 5 * time.Second
	// usedEvery is how exact the last use of a token is.
	usedEvery = 30 * time.Second
)

// Follow keeps the database's tokens up to date until ctx ends, and stores last uses, changes of the file and refusals.
// While the database is away, what was read last stays in force until it expires.
func (t *Tokens) Follow(ctx context.Context, src Source, c clock.Clock) error {
	g, _ := task.New(ctx)
	g.Go("refusals", func(ctx context.Context) error { return t.refusals.follow(ctx, src, c, t.logger) })
	g.Go("tokens", func(ctx context.Context) error { return t.follow(ctx, src, c) })
	return g.Wait()
}

func (t *Tokens) follow(ctx context.Context, src Source, c clock.Clock) error {
	t.mu.Lock()
	t.clock = c
	t.mu.Unlock()
	tick := c.NewTicker(followEvery)
	defer tick.Stop()
	flushed := c.Now()
	for {
		t.step(ctx, src)
		if now := c.Now(); now.Sub(flushed) >= usedEvery {
			flushed = now
			t.flushUsed(ctx, src)
			t.flushSeen(ctx, src, true)
		}
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), followTimeout)
			defer cancel()
			t.flushUsed(last, src)
			t.flushSeen(last, src, true)
			t.flushAudit(last, src)
			return nil
		case <-tick.C():
		case <-t.kick:
		}
	}
}

// step is one round of Follow.
func (t *Tokens) step(ctx context.Context, src Source) {
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	t.flushAudit(ctx, src)
	t.flushSeen(ctx, src, false)
	t.mu.Lock()
	known, now := t.version, t.now()
	t.mu.Unlock()
	stored, version, err := src.APITokens(ctx, known, now)
	var read peopleRead
	if err == nil && version != known {
		read, err = readPeople(ctx, src, now)
	}
	if err != nil && ctx.Err() == nil {
		t.logger.Warn("bearer tokens of the database not read; those that were read stay in force", "error", err.Error())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && version != known {
		t.version = version
		t.stored = make(map[tokenHash]access.StoredToken, len(stored))
		for _, s := range stored {
			t.stored[s.Hash] = s
		}
		t.people.peopleRead, t.people.read = read, true
	}
	// Also where nothing has changed: tokens expire.
	t.endStreams()
}

// Refresh asks for the tokens of the database at once.
func (t *Tokens) Refresh() {
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

// endStreams ends the streams whose token is not in force any more. It needs t.mu.
func (t *Tokens) endStreams() (ended int) {
	for a := range t.streams {
		caller, err := t.check(a.hash, a.need)
		if err == nil && caller.Rights() != a.rights {
			err = failure.Aborted(ReasonRolesChanged, "the roles of %s have changed; call again", caller.Name)
		}
		if err != nil {
			a.end(err)
			ended++
		}
	}
	return ended
}

func (t *Tokens) flushUsed(ctx context.Context, src Source) {
	t.mu.Lock()
	used := t.used
	t.used = map[string]time.Time{}
	t.mu.Unlock()
	if len(used) == 0 {
		return
	}
	if err := src.UsedAPITokens(ctx, used); err != nil {
		t.logger.Warn("last use of bearer tokens not recorded", "error", err.Error())
	}
}

// flushAudit writes what the audit log is to have. What cannot be written now is kept for the next time.
func (t *Tokens) flushAudit(ctx context.Context, src Source) {
	t.mu.Lock()
	changes := slices.Clone(t.changes)
	t.mu.Unlock()
	for _, c := range changes {
		if err := src.RecordTokenFile(ctx, c); err != nil {
			t.logger.Warn("change of the token file not in the audit log yet", "error", err.Error())
			return
		}
		t.mu.Lock()
		t.changes = t.changes[1:]
		t.mu.Unlock()
	}
}

// maxChanges bounds the changes of the file that wait for the database.
const maxChanges = 100

// noteChange compares two readings of the file. It needs t.mu.
func (t *Tokens) noteChange(before, after tokenSet, start bool) {
	c := access.FileChange{Start: start, At: t.now()}
	byName := func(s tokenSet) map[string]token {
		m := map[string]token{}
		for _, tok := range s {
			m[tok.name] = tok
		}
		return m
	}
	was, is := byName(before), byName(after)
	for _, tok := range after {
		switch old, had := was[tok.name]; {
		case !had:
			c.Added = append(c.Added, tok.name+" "+tok.scope.String())
		case old != tok:
			c.Changed = append(c.Changed, tok.name+" "+tok.scope.String())
		}
	}
	for _, tok := range before {
		if _, has := is[tok.name]; !has {
			c.Removed = append(c.Removed, tok.name)
		}
	}
	if len(c.Added)+len(c.Removed)+len(c.Changed) == 0 {
		return
	}
	if len(t.changes) == maxChanges {
		t.logger.Error("too many changes of the token file wait for the audit log; the oldest is only here",
			slog.Any("added", t.changes[0].Added), slog.Any("removed", t.changes[0].Removed),
			slog.Any("changed", t.changes[0].Changed))
		t.changes = t.changes[1:]
	}
	t.changes = append(t.changes, c)
}

// OfFile returns the tokens of the file, in its order.
func (t *Tokens) OfFile() []access.FileToken {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]access.FileToken, 0, len(t.set))
	for _, tok := range t.set {
		out = append(out, access.FileToken{Name: tok.name, Scope: tok.scope, Selection: tok.selection})
	}
	return out
}

// ValidName reports whether a token may have the name.
func ValidName(name string) bool { return namePattern.MatchString(name) }
