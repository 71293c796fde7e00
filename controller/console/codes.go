package console

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"sync"
	"time"
)

const (
	// codeTime is how long a code for signing on is good.
	codeTime  = time.Minute
	codeBytes = 32
	// mostCodes are waiting at a time.
	mostCodes = 1000
)

// codes are one-time codes for sign-on, each bound to the bearer token of the caller that asked for it. Only the
// controller that made them knows them: they are in memory.
type codes struct {
	mu      sync.Mutex
	waiting map[[sha256.Size]byte]waiting
}

type waiting struct {
	token   string
	expires time.Time
}

var errTooManyCodes = errors.New("too many people are signing on; try again in a minute")

func (c *codes) add(token string, now time.Time) (code string, expires time.Time, err error) {
	raw := make([]byte, codeBytes)
	rand.Read(raw) //nolint:errcheck // crypto/rand.Read never fails since Go 1.24
	code = base64.RawURLEncoding.EncodeToString(raw)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = map[[sha256.Size]byte]waiting{}
	}
	for hash, w := range c.waiting {
		if !now.Before(w.expires) {
			delete(c.waiting, hash)
		}
	}
	if len(c.waiting) >= mostCodes {
		return "", time.Time{}, errTooManyCodes
	}
	expires = now.Add(codeTime)
	c.waiting[sha256.Sum256([]byte(code))] = waiting{token: token, expires: expires}
	return code, expires, nil
}

// use gives the token of a code, and forgets the code.
func (c *codes) use(code string, now time.Time) (token string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hash := sha256.Sum256([]byte(code))
	w, ok := c.waiting[hash]
	delete(c.waiting, hash)
	return w.token, ok && now.Before(w.expires)
}
