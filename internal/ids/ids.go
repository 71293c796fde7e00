// Package ids makes and checks the identifiers of the system: a prefix that tells the kind, then a ULID
// (github.com/ulid/spec: 48 bits of milliseconds, 80 random bits) in lower-case Crockford base 32, so that
// ids of one kind made by one process sort in the order they were made.
package ids

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"sync"
	"time"
)

// The prefixes in use.
const (
	Operation  = "op"
	Command    = "cmd"
	Machine    = "m"
	Agent      = "a"
	Plan       = "plan"
	Session    = "s"
	Token      = "t"
	APIToken   = "tk"
	State      = "st"
	Controller = "c"
	Workflow   = "wf"
	Webhook    = "wh"
	Delivery   = "dlv"
	Event      = "evt"
	Rollout    = "ro"

	WebhookSecret = "whs"
)

const (
	alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	ulidLen  = 26
)

// New makes an id such as "op-01jf0c9v8xk3m5q7r9t1v3x5z7". Its random part comes from crypto/rand. Ids made
// within one millisecond, or while the wall clock stands or runs back, count up from the one before, so they
// still sort.
func New(prefix string) string {
	u := source.next(time.Now().UnixMilli())
	return prefix + "-" + encode(u)
}

// Valid says that s is an id of the kind that prefix names, in the form that New writes.
func Valid(prefix, s string) bool {
	u, ok := strings.CutPrefix(s, prefix+"-")
	// 26 digits hold 130 bits; a first digit above 7 would need more than the 128 that there are.
	if !ok || len(u) != ulidLen || u[0] > '7' {
		return false
	}
	for i := range len(u) {
		if strings.IndexByte(alphabet, u[i]) < 0 {
			return false
		}
	}
	return true
}

// Secret gives n random bytes from crypto/rand as unpadded base64url.
func Secret(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // since Go 1.24 it never fails: it ends the program instead
	return base64.RawURLEncoding.EncodeToString(b)
}

// ulid is a 128-bit number; the top 48 bits are milliseconds.
type ulid struct{ hi, lo uint64 }

type generator struct {
	mu   sync.Mutex
	last ulid
}

var source generator

func (g *generator) next(ms int64) ulid {
	g.mu.Lock()
	defer g.mu.Unlock()
	u := random(uint64(ms))
	if uint64(ms) <= g.last.hi>>16 {
		u = g.last.plus(u.lo>>32 | 1) // a random step: the next id cannot be told from this one
	}
	g.last = u
	return u
}

func random(ms uint64) ulid {
	var b [10]byte
	_, _ = rand.Read(b[:]) // see Secret
	return ulid{
		hi: ms<<16 | uint64(binary.BigEndian.Uint16(b[:2])),
		lo: binary.BigEndian.Uint64(b[2:]),
	}
}

// plus carries into the time part when the random part overflows; the id then lies a millisecond ahead.
func (u ulid) plus(step uint64) ulid {
	lo := u.lo + step
	if lo < u.lo {
		u.hi++
	}
	u.lo = lo
	return u
}

func encode(u ulid) string {
	var out [ulidLen]byte
	for i := ulidLen - 1; i >= 0; i-- {
		out[i] = alphabet[u.lo&31]
		u.lo = u.lo>>5 | u.hi<<59
		u.hi >>= 5
	}
	return string(out[:])
}
