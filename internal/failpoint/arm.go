package failpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
)

// EnvVar is the environment variable that FromEnv reads.
const EnvVar = "INGOT_FAILPOINTS"

// table holds armed actions and counts hits. Its zero hit counts start when an action is set.
type table struct {
	mu      sync.Mutex
	actions map[string]Action
	hits    map[string]uint64
}

func newTable() *table {
	return &table{actions: map[string]Action{}, hits: map[string]uint64{}}
}

// hit counts and then acts outside the lock, since an action may block or panic.
func (t *table) hit(ctx context.Context, name string) error {
	t.mu.Lock()
	t.hits[name]++
	a, n := t.actions[name], t.hits[name]
	t.mu.Unlock()
	if !a.due(n) {
		return nil
	}
	return a.fire(ctx, name)
}

func (t *table) set(name string, a Action) (restore func()) {
	if !known(name) {
		panic(fmt.Sprintf("failpoint: %q is not registered", name))
	}
	armed.Store(true)
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.actions[name]
	t.actions[name] = a
	t.hits[name] = 0
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.actions[name] = before
	}
}

func (t *table) count(name string) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hits[name]
}

// Set arms a failpoint in the whole process and returns what puts back the action before it. It panics on a
// name that is not registered.
func Set(name string, a Action) (restore func()) { return global.set(name, a) }

// Enable arms the failpoints of a specification in the form of INGOT_FAILPOINTS. Nothing is armed when any part of it
// is wrong; the error names every wrong part.
func Enable(spec string) (restore func(), err error) {
	wanted, err := parse(spec)
	if err != nil {
		return nil, err
	}
	var undo []func()
	for name, a := range wanted {
		undo = append(undo, Set(name, a))
	}
	return func() {
		for _, f := range undo {
			f()
		}
	}, nil
}

// FromEnv arms the failpoints of INGOT_FAILPOINTS; unset and empty mean nothing.
func FromEnv() error {
	if _, err := Enable(os.Getenv(EnvVar)); err != nil {
		return fmt.Errorf("read %s: %w", EnvVar, err)
	}
	return nil
}

func parse(spec string) (map[string]Action, error) {
	wanted := map[string]Action{}
	var problems []error
	for part := range strings.SplitSeq(spec, ";") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		name, a, err := parsePart(part)
		if _, twice := wanted[name]; err == nil && twice {
			err = fmt.Errorf("failpoint %q is given twice", name)
		}
		if err != nil {
			problems = append(problems, err)
			continue
		}
		wanted[name] = a
	}
	return wanted, errors.Join(problems...)
}

func parsePart(part string) (string, Action, error) {
	name, action, ok := strings.Cut(part, "=")
	if !ok {
		return "", Action{}, fmt.Errorf("%q is not name=action", part)
	}
	if !known(name) {
		return "", Action{}, fmt.Errorf("failpoint %q is not registered", name)
	}
	a, err := ParseAction(action)
	if err != nil {
		return "", Action{}, fmt.Errorf("failpoint %q: %w", name, err)
	}
	return name, a, nil
}

// Scope is a set of armed failpoints that only code running under its context sees, so that parallel tests in
// one process don't meet. It is safe for concurrent use.
type Scope struct{ table *table }

type scopeKey struct{}

// NewScope makes a Scope in which nothing is armed.
func NewScope() *Scope { return &Scope{table: newTable()} }

// Set arms a failpoint in the scope. It panics on a name that is not registered.
func (s *Scope) Set(name string, a Action) (restore func()) { return s.table.set(name, a) }

// Hits is how often the failpoint was passed under this scope, armed or not, since the last Set of it.
func (s *Scope) Hits(name string) uint64 { return s.table.count(name) }

// With returns a context under which HitCtx obeys s. An outer scope is hidden, not merged.
func With(ctx context.Context, s *Scope) context.Context {
	armed.Store(true)
	return context.WithValue(ctx, scopeKey{}, s)
}

func scopeOf(ctx context.Context) *Scope {
	s, _ := ctx.Value(scopeKey{}).(*Scope)
	return s
}
