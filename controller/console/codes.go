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
	// mostCodes are waiting at a time; of one caller and of one address there are fewer, so that no one uses up all.
	mostCodes, mostOfCaller, mostOfAddress = 1000, 10, 50
)

// codes are one-time codes for sign-on, each bound to the bearer token of the caller that asked for it. Only the
// controller that made them knows them: they are in memory.
type codes struct {
	mu      sync.Mutex
	waiting map[[sha256.Size]byte]waiting
}

// asker is who asks for a code: an identity, and the IP address that it comes from.
type asker struct{ identity, address string }

type waiting struct {
	asker   asker
	token   string
	expires time.Time
}

var (
	errTooManyCodes = errors.New("too many people are signing on; try again in a minute")
	errTooManyOfOne = errors.New("too many codes of this caller or address wait to be used; try again in a minute")
)

func (c *codes) add(by asker, token string, now time.Time) (code string, expires time.Time, err error) {
	raw := make([]byte, codeBytes)
	rand.Read(raw) //nolint:errcheck // crypto/rand.Read never fails since Go 1.24
	code = base64.RawURLEncoding.EncodeToString(raw)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = map[[sha256.Size]byte]waiting{}
	}
	ofCaller, ofAddress := 0, 0
	for hash, w := range c.waiting {
		switch {
		case !now.Before(w.expires):
			delete(c.waiting, hash)
			continue
		case w.asker.identity == by.identity:
			ofCaller++
		}
		if w.asker.address == by.address {
			ofAddress++
		}
	}
	if ofCaller >= mostOfCaller || ofAddress >= mostOfAddress {
		return "", time.Time{}, errTooManyOfOne
	}
	if len(c.waiting) >= mostCodes {
		return "", time.Time{}, errTooManyCodes
	}
	expires = now.Add(codeTime)
	c.waiting[sha256.Sum256([]byte(code))] = waiting{asker: by, token: token, expires: expires}
	return code, expires, nil
}

// use returns the token of a code, and forgets the code.
func (c *codes) use(code string, now time.Time) (token string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hash := sha256.Sum256([]byte(code))
	w, ok := c.waiting[hash]
	delete(c.waiting, hash)
	return w.token, ok && now.Before(w.expires)
}
