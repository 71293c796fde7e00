// Package ids makes and checks the identifiers of the system: a prefix for the kind, then a ULID in lower-case
// Crockford base 32. A ULID has 48 bits of milliseconds and 80 random bits (github.com/ulid/spec), so that one
// process's ids of one kind sort by their creation.
package ids

import (
	"crypto/rand"
	"encoding/base64"
	"strings"
	"sync"

	"github.com/oklog/ulid/v2"
)

// The prefixes in use.
const (
	Operation   = "op"
	Command     = "cmd"
	Machine     = "m"
	Agent       = "a"
	Plan        = "plan"
	Session     = "s"
	Token       = "t"
	APIToken    = "tk"
	State       = "st"
	Controller  = "c"
	Workflow    = "wf"
	Webhook     = "wh"
	Delivery    = "dlv"
	Event       = "evt"
	Rollout     = "ro"
	Selection   = "sel"
	RoleBinding = "rb"

	WebhookSecret = "whs"
)

// New makes an id such as "op-01jf0c9v8xk3m5q7r9t1v3x5z7". Its random part comes from crypto/rand. Ids made
// within one millisecond, or while the wall clock stands or runs back, count up from the one before, so they
// still sort.
func New(prefix string) string {
	return prefix + "-" + source.next(ulid.Now())
}

// Valid reports whether s is an id of the kind that prefix names, in the form that New writes.
func Valid(prefix, s string) bool {
	u, ok := strings.CutPrefix(s, prefix+"-")
	if !ok || u != strings.ToLower(u) {
		return false
	}
	_, err := ulid.ParseStrict(u)
	return err == nil
}

// Secret returns n random bytes from crypto/rand as unpadded base64url.
func Secret(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // since Go 1.24 it never fails: it ends the program instead
	return base64.RawURLEncoding.EncodeToString(b)
}

// generator makes ULIDs that sort in the order in which they are made.
type generator struct {
	mu      sync.Mutex
	last    uint64 // milliseconds
	entropy *ulid.MonotonicEntropy
}

var source generator

func (g *generator) next(ms uint64) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.entropy == nil {
		g.entropy = ulid.Monotonic(rand.Reader, 0)
	}
	g.last = max(g.last, ms)
	u, err := ulid.New(g.last, g.entropy)
	for err != nil { // the random part has overflowed within a millisecond: crypto/rand never fails
		g.last++
		u, err = ulid.New(g.last, g.entropy)
	}
	return strings.ToLower(u.String())
}
