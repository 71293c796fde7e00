package secret

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

func seedName(id string) string { return "system seed\x00" + id }

// SealSeed seals the seed of a new system's first boot. The id is the same for the same content and sealing key, and
// reveals nothing of the content without that key.
func (b *Box) SealSeed(plain []byte) (id string, sealed []byte) {
	mac := hmac.New(sha256.New, b.derive)
	mac.Write([]byte("system seed\x00"))
	mac.Write(plain)
	id = "seed-" + hex.EncodeToString(mac.Sum(nil)[:16])
	return id, b.Seal(seedName(id), plain)
}

// OpenSeed opens a seed that was sealed under this id; ErrSealed where that is not possible.
func (b *Box) OpenSeed(id string, sealed []byte) ([]byte, error) { return b.Open(seedName(id), sealed) }
