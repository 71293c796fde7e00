// Package mediaproof is how an installer proves that it was started from the image that a machine's BMC attached: by a
// code over its own key, made with the secret that stands in the image. The secret itself is never sent.
package mediaproof

import (
	"crypto/hmac"
	"crypto/sha256"
	"net/netip"
)

// Make returns the proof of a key, by the SHA-256 of its public part, for one boot token.
func Make(secret []byte, bootToken string, keyDigest []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("ingot media boot 1\x00"))
	mac.Write([]byte(bootToken))
	mac.Write([]byte{0})
	mac.Write(keyDigest)
	return mac.Sum(nil)
}

// Verify reports whether a proof is that of the key. Without a secret no proof holds.
func Verify(secret []byte, bootToken string, keyDigest, proof []byte) bool {
	return len(secret) > 0 && hmac.Equal(proof, Make(secret, bootToken, keyDigest))
}

// FileName is where the file is at the root of an installer's memory that was started from an attached image.
const FileName = "ingot-media.json"

// File is what stands in an attached image beside the installer.
type File struct {
	// Secret makes the proof.
	Secret []byte `json:"secret"`
	// MACs are those of the machine's network interfaces, lower case with colons.
	MACs []string `json:"macs"`
	// Address is the installer's, with its prefix; the zero value means by DHCP. Gateway and DNS go with it.
	Address netip.Prefix `json:"address,omitzero"`
	Gateway netip.Addr   `json:"gateway,omitzero"`
	DNS     []netip.Addr `json:"dns,omitempty"`
}
