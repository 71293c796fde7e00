package failpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// ErrInjected is what a failpoint armed with "error" returns, wrapped with its name.
var ErrInjected = errors.New("injected failure")

// Point is one registered failpoint.
type Point struct{ name string }

var (
	registryMu sync.RWMutex
	registry   = map[string]*Point{}

	// armed is set by the first action or scope and never cleared: an inert process pays one load of it.
	armed  atomic.Bool
	global = newTable()
)

// Register adds a failpoint. It is meant for package variables, and panics on a name that is empty, malformed
// or taken.
func Register(name string) *Point {
	registryMu.Lock()
	defer registryMu.Unlock()
	if !validName(name) {
		panic(fmt.Sprintf("failpoint: malformed name %q", name))
	}
	if registry[name] != nil {
		panic(fmt.Sprintf("failpoint: %q is registered twice", name))
	}
	p := &Point{name: name}
	registry[name] = p
	return p
}

// Names lists every registered failpoint, sorted.
func Names() []string {
	registryMu.RLock()
	defer registryMu.RUnlock()
	return slices.Sorted(maps.Keys(registry))
}

// Name is the registered name.
func (p *Point) Name() string { return p.name }

// Hit passes the failpoint: nil, or an error that wraps ErrInjected, or no return at all.
func (p *Point) Hit() error {
	if !armed.Load() {
		return nil
	}
	return global.hit(context.Background(), p.name)
}

// HitCtx is Hit that also obeys the Scope in ctx, which comes first.
func (p *Point) HitCtx(ctx context.Context) error {
	if !armed.Load() {
		return nil
	}
	if s := scopeOf(ctx); s != nil {
		if err := s.table.hit(ctx, p.name); err != nil {
			return err
		}
	}
	return global.hit(ctx, p.name)
}

func known(name string) bool {
	registryMu.RLock()
	defer registryMu.RUnlock()
	return registry[name] != nil
}

func validName(name string) bool {
	if name == "" {
		return false
	}
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
