package pki

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/internal/ids"
)

const (
	bundlePrefix  = "ingot1."
	bundleSumSize = 4
)

// ErrBadBundle is wrapped by every error of ParseBundle.
var ErrBadBundle = errors.New("not a usable bootstrap token")

// Bundle is the operator's input to a machine, so that it can find and verify its controller and enrol.
type Bundle struct {
	TokenID   string            // "t-…"
	Secret    string            // works once; the controller stores its hash only
	CAHash    [sha256.Size]byte // SHA-256 of the root certificate in DER
	Addresses []string          // host:port of the enrolment listeners, to be tried in this order
	IssuedAt  time.Time         // the controller's clock in whole seconds; a time that the agent knows to be past
}

type bundleJSON struct {
	TokenID   string   `json:"id"`
	Secret    string   `json:"secret"`
	CAHash    string   `json:"ca"`
	Addresses []string `json:"addr"`
	IssuedAt  int64    `json:"iat,omitempty"`
}

// Encode returns the printable form: "ingot1." and base64url of a checksum and JSON. The checksum only catches
// slips of copying; it is no protection against a forger.
func (b Bundle) Encode() (string, error) {
	if err := b.check(); err != nil {
		return "", fmt.Errorf("encode bootstrap token: %w", err)
	}
	w := bundleJSON{
		TokenID: b.TokenID, Secret: b.Secret, CAHash: hex.EncodeToString(b.CAHash[:]), Addresses: b.Addresses,
	}
	if !b.IssuedAt.IsZero() {
		w.IssuedAt = b.IssuedAt.Unix()
	}
	payload, err := json.Marshal(w)
	if err != nil {
		return "", fmt.Errorf("encode bootstrap token: %w", err)
	}
	sum := sha256.Sum256(payload)
	return bundlePrefix + base64.RawURLEncoding.EncodeToString(append(sum[:bundleSumSize], payload...)), nil
}

// String hides the secret, so that a Bundle in a log line discloses nothing.
func (b Bundle) String() string { return "bootstrap token " + b.TokenID }

// GoString hides the secret from %#v.
func (b Bundle) GoString() string { return b.String() }

// ParseBundle reads the printable form. Spaces and line breaks, as terminals and mail add them, are ignored.
// The errors never show the secret.
func ParseBundle(s string) (Bundle, error) {
	payload, err := bundlePayload(strings.Join(strings.Fields(s), ""))
	if err != nil {
		return Bundle{}, err
	}
	var w bundleJSON
	if err := json.Unmarshal(payload, &w); err != nil {
		return Bundle{}, fmt.Errorf("%w: its content cannot be read", ErrBadBundle)
	}
	b := Bundle{TokenID: w.TokenID, Secret: w.Secret, Addresses: w.Addresses}
	hash, err := hex.DecodeString(w.CAHash)
	if err != nil || len(hash) != len(b.CAHash) {
		return Bundle{}, fmt.Errorf("%w: the CA hash is malformed", ErrBadBundle)
	}
	copy(b.CAHash[:], hash)
	if w.IssuedAt != 0 {
		b.IssuedAt = time.Unix(w.IssuedAt, 0).UTC()
	}
	if err := b.check(); err != nil {
		return Bundle{}, fmt.Errorf("%w: %w", ErrBadBundle, err)
	}
	return b, nil
}

func bundlePayload(s string) ([]byte, error) {
	body, ok := strings.CutPrefix(s, bundlePrefix)
	if !ok {
		return nil, fmt.Errorf("%w: it does not begin with %q", ErrBadBundle, bundlePrefix)
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err != nil || len(raw) < bundleSumSize {
		return nil, fmt.Errorf("%w: it is cut short or has characters that do not belong", ErrBadBundle)
	}
	sum := sha256.Sum256(raw[bundleSumSize:])
	if string(sum[:bundleSumSize]) != string(raw[:bundleSumSize]) {
		return nil, fmt.Errorf("%w: its checksum is wrong, part of it was lost or changed", ErrBadBundle)
	}
	return raw[bundleSumSize:], nil
}

func (b Bundle) check() error {
	switch {
	case !ids.Valid(ids.Token, b.TokenID):
		return errors.New("the token id is malformed")
	case b.Secret == "":
		return errors.New("the secret is empty")
	case b.CAHash == [sha256.Size]byte{}:
		return errors.New("the CA hash is empty")
	case len(b.Addresses) == 0:
		return errors.New("there is no address")
	}
	for _, a := range b.Addresses {
		if host, port, err := net.SplitHostPort(a); err != nil || host == "" || port == "" {
			return fmt.Errorf("address %q is not host:port", a)
		}
	}
	return nil
}
