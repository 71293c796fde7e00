package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Verifier checks the tokens of the provider that people sign on with.
type Verifier interface {
	// Verify returns the person of a token. Without wait it makes no call to the provider, and returns ErrWouldWait where
	// it would have to.
	Verify(ctx context.Context, token string, wait bool) (access.Person, error)
}

// ErrWouldWait is returned when a token cannot be checked without asking the provider.
var ErrWouldWait = errors.New("the provider's keys are not known yet")

// PeopleSource is where roles and sessions are kept.
type PeopleSource interface {
	// RoleBindings returns the bindings that have not ended.
	RoleBindings(ctx context.Context, now time.Time) ([]access.RoleBinding, error)
	// RevokedSessions returns when sessions were revoked, by id.
	RevokedSessions(ctx context.Context, now time.Time) (map[string]time.Time, error)
	// TokenMakers returns the people who have made tokens in force, by identity, as their newest sign-on has them.
	TokenMakers(ctx context.Context, now time.Time) (map[string]access.Person, error)
	// RecordSessions records who was here. New ones go to the audit log as sign-ons.
	RecordSessions(ctx context.Context, all []access.Seen) error
}

// maxPeople bounds the tokens of people that are in memory.
const maxPeople = 20_000

// people are those who have signed on, and their roles. Tokens.mu guards it; the verifier never changes.
type people struct {
	verifier Verifier
	known    map[tokenHash]access.Person
	// read is set when roles and revocations were read since the start.
	read bool
	peopleRead
	// lastSignOn bounds the age of a person's sign-on by which the person's tokens are worth something.
	lastSignOn time.Duration
	// seen are the sessions to record, recorded those that were recorded, with their end.
	seen     map[string]access.Seen
	recorded map[string]time.Time
}

// peopleRead is what was read last of people's roles.
type peopleRead struct {
	bindings []access.RoleBinding
	revoked  map[string]time.Time
	makers   map[string]access.Person
}

// DefaultLastSignOn is the age of a sign-on by which the tokens of its person are worth something.
const DefaultLastSignOn = 24 * time.Hour

// SignOn has tokens of a provider count. It is called before the first call. lastSignOn is the greatest age of a
// person's sign-on by which that person's own tokens are worth something.
func (t *Tokens) SignOn(v Verifier, lastSignOn time.Duration) {
	t.people.verifier, t.people.lastSignOn = v, lastSignOn
}

// meet has the token of a person checked that is seen for the first time. All other tokens pass.
func (t *Tokens) meet(ctx context.Context, secret string, wait bool) error {
	v := t.people.verifier
	if v == nil || strings.Count(secret, ".") != 2 {
		return nil
	}
	h := tokenHash(sha256.Sum256([]byte(secret)))
	t.mu.Lock()
	_, known := t.people.known[h]
	t.mu.Unlock()
	if known {
		return nil
	}
	p, err := v.Verify(ctx, secret, wait)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.people.add(h, p, t.now())
	return nil
}

// add keeps a token. Where there are too many, those that have ended go, and then any one.
func (p *people) add(h tokenHash, who access.Person, now time.Time) {
	if p.known == nil {
		p.known = map[tokenHash]access.Person{}
	}
	if len(p.known) >= maxPeople {
		p.forget(now)
	}
	for old := range p.known {
		if len(p.known) < maxPeople {
			break
		}
		delete(p.known, old)
	}
	p.known[h] = who
}

// forget drops tokens and sessions that have ended.
func (p *people) forget(now time.Time) {
	maps.DeleteFunc(p.known, func(_ tokenHash, who access.Person) bool { return !now.Before(who.ExpiresAt) })
	maps.DeleteFunc(p.recorded, func(_ string, end time.Time) bool { return !now.Before(end) })
}

// find returns the caller whose token it is; found is false where it is no person's.
func (p *people) find(h tokenHash, need access.Scope, now time.Time) (c access.Caller, found bool, err error) {
	who, found := p.known[h]
	if !found {
		return c, false, nil
	}
	if !now.Before(who.ExpiresAt) {
		return c, true, failure.Unauthenticated(ReasonSignOnExpired,
			"the sign-on of %s has expired; sign on again (ingot login)", who.Name)
	}
	if !p.read {
		return c, true, failure.Unavailable("DATABASE_UNAVAILABLE",
			"the controller has just started, and does not know the roles of %s yet", who.Name)
	}
	if at, ok := p.revoked[who.Session]; ok && (who.Lasting || !who.IssuedAt.After(at)) {
		return c, true, failure.Unauthenticated(ReasonSignOnRevoked,
			"an admin has revoked this session of %s; sign on again (ingot login)", who.Name)
	}
	c, err = access.PersonCaller(who, who.Grants(p.bindings, now), need)
	return c, true, err
}

// saw notes that a person's call was let in, or refused for lack of rights.
func (t *Tokens) saw(c access.Caller) {
	if c.Person == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &t.people
	if p.seen == nil {
		p.seen, p.recorded = map[string]access.Seen{}, map[string]time.Time{}
	}
	if len(p.seen) >= maxPeople {
		return // they are written every half minute: the next call of this one is noted
	}
	_, old := p.recorded[c.Person.Session]
	was := p.seen[c.Person.Session]
	one := access.Seen{Person: *c.Person, Address: c.Address, At: t.now(), New: !old}
	if was.New { // the address of the sign-on is that of its first call
		one.New, one.Address = true, was.Address
	}
	p.seen[c.Person.Session] = one
}

// flushSeen records sessions: the new ones, or all. What cannot be written now is kept for the next time.
func (t *Tokens) flushSeen(ctx context.Context, src PeopleSource, all bool) {
	t.mu.Lock()
	if all {
		t.people.forget(t.now())
	}
	var batch []access.Seen
	for _, id := range slices.Sorted(maps.Keys(t.people.seen)) {
		s := t.people.seen[id]
		if renewed := t.people.recorded[id].Before(s.Person.ExpiresAt); all || renewed {
			batch = append(batch, s)
		}
	}
	t.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	if err := src.RecordSessions(ctx, batch); err != nil {
		t.logger.Warn("sessions of people not recorded yet", "error", err.Error())
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range batch {
		id := s.Person.Session
		t.people.recorded[id] = s.Person.ExpiresAt
		if now := t.people.seen[id]; now.At.Equal(s.At) {
			delete(t.people.seen, id)
		} else {
			now.New = false
			t.people.seen[id] = now
		}
	}
}

// readPeople reads roles, revocations and the makers of tokens anew.
func readPeople(ctx context.Context, src PeopleSource, now time.Time) (r peopleRead, err error) {
	if r.bindings, err = src.RoleBindings(ctx, now); err != nil {
		return r, err
	}
	if r.revoked, err = src.RevokedSessions(ctx, now); err != nil {
		return r, err
	}
	r.makers, err = src.TokenMakers(ctx, now)
	return r, err
}

// unknown is the actor of refusals of unknown callers.
const unknown = "unknown"

// RefusedSignOn counts a sign-on that was refused, for the audit log. The name is empty for an unknown person.
func (t *Tokens) RefusedSignOn(name, address, reason string) {
	if name == "" {
		name, address = unknown, t.refusals.addressOf(address, t.Now())
	}
	t.refusals.count(name, address, "sign-on: "+reason, "")
}
