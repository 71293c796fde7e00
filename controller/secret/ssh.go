package secret

import (
	"encoding/json"
	"fmt"
)

// SSH is what it takes to log in to a machine.
type SSH struct {
	Username string `json:"u"`
	// PrivateKey is PEM, without a passphrase.
	PrivateKey []byte `json:"k"`
}

// String and GoString keep it out of logs.
func (SSH) String() string { return "[sealed]" }

// GoString keeps it out of logs too.
func (SSH) GoString() string { return "[sealed]" }

func sshName(ref string) string { return "ssh\x00" + ref }

// SealSSH seals credentials under their name.
func (b *Box) SealSSH(ref string, c SSH) []byte {
	raw, _ := json.Marshal(c) // a string and bytes always serialize
	return b.Seal(sshName(ref), raw)
}

// OpenSSH opens credentials that were sealed under this name; ErrSealed where that is not possible.
func (b *Box) OpenSSH(ref string, sealed []byte) (SSH, error) {
	raw, err := b.Open(sshName(ref), sealed)
	if err != nil {
		return SSH{}, err
	}
	var c SSH
	if err := json.Unmarshal(raw, &c); err != nil {
		return SSH{}, fmt.Errorf("parse credentials: %w", ErrSealed)
	}
	return c, nil
}
