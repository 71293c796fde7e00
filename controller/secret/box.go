package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
)

// KeySize is the length of a key in bytes: AES-256.
const KeySize = 32

const (
	// version is the first byte of whatever is sealed.
	version   = 1
	idSize    = 8
	nonceSize = 12
	header    = 1 + idSize + nonceSize
)

// ErrSealed is returned when a sealed text cannot be opened: it was changed, belongs to another name, or its key is not
// there.
var ErrSealed = errors.New("sealed with another key, for another name, or damaged")

type keyID [idSize]byte

// Box seals with one key and opens with several. It is safe for concurrent use.
type Box struct {
	seal keyID
	keys map[keyID]cipher.AEAD
	// derive is what secrets that are stored nowhere are made of. It comes from the key that seals.
	derive []byte
}

// New makes a box of at least one key. The first seals.
func New(keys ...[]byte) (*Box, error) {
	if len(keys) == 0 {
		return nil, errors.New("no key")
	}
	b := &Box{seal: idOf(keys[0]), keys: map[keyID]cipher.AEAD{}, derive: deriving(keys[0])}
	for i, k := range keys {
		if len(k) != KeySize {
			return nil, fmt.Errorf("key %d has %d bytes, not %d", i+1, len(k), KeySize)
		}
		block, err := aes.NewCipher(k)
		if err != nil {
			return nil, fmt.Errorf("make cipher: %w", err)
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return nil, fmt.Errorf("make cipher: %w", err)
		}
		b.keys[idOf(k)] = aead
	}
	return b, nil
}

// idOf names a key without telling anything about it.
func idOf(key []byte) keyID {
	sum := sha256.Sum256(append([]byte("ingot key id\x00"), key...))
	return keyID(sum[:idSize])
}

// deriving keeps the key itself for sealing alone.
func deriving(key []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("ingot derived secrets"))
	return mac.Sum(nil)
}

// Seal encrypts plain for name. A second call returns another text. It is version, key id, nonce and ciphertext with
// tag.
func (b *Box) Seal(name string, plain []byte) []byte {
	out := make([]byte, header, header+len(plain)+16)
	out[0] = version
	copy(out[1:], b.seal[:])
	nonce := out[1+idSize : header]
	rand.Read(nonce) //nolint:errcheck // crypto/rand.Read never fails since Go 1.24
	return b.keys[b.seal].Seal(out, nonce, plain, additional(out[:1+idSize], name))
}

// Open decrypts what Seal has made for the same name, or fails with ErrSealed.
func (b *Box) Open(name string, sealed []byte) ([]byte, error) {
	if len(sealed) < header || sealed[0] != version {
		return nil, ErrSealed
	}
	aead, ok := b.keys[keyID(sealed[1:1+idSize])]
	if !ok {
		return nil, ErrSealed
	}
	plain, err := aead.Open(nil, sealed[1+idSize:header], sealed[header:], additional(sealed[:1+idSize], name))
	if err != nil {
		return nil, ErrSealed
	}
	return plain, nil
}

// additional binds the text to its name, its version and its key.
func additional(head []byte, name string) []byte {
	return append(append([]byte("ingot sealed\x00"), head...), name...)
}
