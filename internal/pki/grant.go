package pki

import (
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
)

const grantDomain = "ingot-grant-v1\x00"

// ErrGrant is returned when a grant's signature is not the controller's over these claims.
var ErrGrant = errors.New("grant signature does not verify")

// GrantClaims is what a grant binds: one command, on one target, by one executor with one memory, in answer
// to one numbered ask.
type GrantClaims struct {
	CommandID string // "cmd-…"
	TargetID  string // machine that the command changes
	AgentID   string // executor
	StateID   string // the executor's state database
	Nonce     []byte // from the executor's ask
	Digest    []byte // SHA-256 of the command
	Seq       uint64 // number of the ask, per StateID
	// IssuedAtUnixMs is the controller's clock, for the record. An executor measures the grant's age by its
	// own boot-time clock from the moment of its ask.
	IssuedAtUnixMs int64
}

// encode is unambiguous: a fixed prefix for the purpose, each variable field behind its length, numbers in
// eight bytes, all big-endian.
func (c GrantClaims) encode() []byte {
	out := []byte(grantDomain)
	for _, f := range [][]byte{
		[]byte(c.CommandID), []byte(c.TargetID), []byte(c.AgentID), []byte(c.StateID), c.Nonce, c.Digest,
	} {
		out = binary.BigEndian.AppendUint32(out, uint32(len(f)))
		out = append(out, f...)
	}
	out = binary.BigEndian.AppendUint64(out, c.Seq)
	return binary.BigEndian.AppendUint64(out, uint64(c.IssuedAtUnixMs))
}

func (c GrantClaims) check() error {
	switch {
	case c.CommandID == "", c.TargetID == "", c.AgentID == "", c.StateID == "":
		return errors.New("a grant needs command, target, agent and state ids")
	case len(c.Nonce) == 0 || len(c.Digest) == 0:
		return errors.New("a grant needs a nonce and a digest")
	}
	return nil
}

// SignGrant signs the claims (Ed25519, RFC 8032). Claims with an empty field are refused, since such a grant
// would be wider than any that is meant.
func SignGrant(key ed25519.PrivateKey, c GrantClaims) ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("sign grant: %w", err)
	}
	if len(key) != ed25519.PrivateKeySize {
		return nil, fmt.Errorf("sign grant: key has %d bytes, want %d", len(key), ed25519.PrivateKeySize)
	}
	return ed25519.Sign(key, c.encode()), nil
}

// VerifyGrant checks that sig is over exactly these claims. The caller puts in what it expects (its own ids, nonce and
// digest), never the grant's own values. Its errors wrap ErrGrant.
func VerifyGrant(pub ed25519.PublicKey, c GrantClaims, sig []byte) error {
	if len(pub) != ed25519.PublicKeySize {
		return fmt.Errorf("%w: public key has %d bytes, want %d", ErrGrant, len(pub), ed25519.PublicKeySize)
	}
	if err := c.check(); err != nil {
		return fmt.Errorf("%w: %w", ErrGrant, err)
	}
	if !ed25519.Verify(pub, c.encode(), sig) {
		return ErrGrant
	}
	return nil
}
