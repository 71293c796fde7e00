package secret

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// sealedArgument begins an argument of a script that is sealed: a keyed digest and the sealed text in base64 follow.
const sealedArgument = "sealed:v1:"

func argumentName(digest string) string { return "script argument\x00" + digest }

// SealArgument seals an argument of a script. The part before the last colon is the same for the same argument and the
// same sealing key. It reveals nothing of the argument without that key.
func (b *Box) SealArgument(plain string) string {
	mac := hmac.New(sha256.New, b.derive)
	mac.Write([]byte("script argument\x00"))
	mac.Write([]byte(plain))
	digest := hex.EncodeToString(mac.Sum(nil)[:16])
	sealed := b.Seal(argumentName(digest), []byte(plain))
	return sealedArgument + digest + ":" + base64.RawStdEncoding.EncodeToString(sealed)
}

// HoldsArgument reports whether a message may hold a sealed argument.
func HoldsArgument(message []byte) bool { return bytes.Contains(message, []byte(sealedArgument)) }

// OpenArgument opens an argument that SealArgument has sealed; ErrSealed where that is not possible.
func (b *Box) OpenArgument(text string) (string, error) {
	digest, sealed, ok := strings.Cut(strings.TrimPrefix(text, sealedArgument), ":")
	raw, err := base64.RawStdEncoding.DecodeString(sealed)
	if !ok || err != nil || !strings.HasPrefix(text, sealedArgument) {
		return "", ErrSealed
	}
	plain, err := b.Open(argumentName(digest), raw)
	return string(plain), err
}
