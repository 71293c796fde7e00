package tpm

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
)

// ErrKey is wrapped by the errors of public areas that are not what they should be.
var ErrKey = errors.New("not a usable TPM key")

const (
	// MaxPublic bounds a public area in bytes: an RSA key of 3072 bits with policy has about 440.
	MaxPublic = 1 << 10
	// MaxCertificate bounds the certificate of an endorsement key in bytes. Its NV index holds at most 2 KiB on the
	// TPMs that are known.
	MaxCertificate = 8 << 10
	// SecretSize is the length of an activated secret in bytes. It fits the digest of every EK's name algorithm.
	SecretSize = 32
)

// EndorsementKey is the public part of a TPM's endorsement key.
type EndorsementKey struct {
	area  tpm2.TPMTPublic
	bytes []byte
}

// ParseEndorsementKey reads a TPMT_PUBLIC as TPM2_CreatePrimary returns it. The key must be a restricted decryption key
// that never leaves its TPM: RSA of 2048 or 3072 bits, or ECC P-256 or P-384 (TCG EK Credential Profile, section
// 2.1.5).
func ParseEndorsementKey(public []byte) (*EndorsementKey, error) {
	area, err := parse(public)
	if err != nil {
		return nil, err
	}
	a := area.ObjectAttributes
	if !a.Restricted || !a.Decrypt || a.SignEncrypt || !resident(a) {
		return nil, fmt.Errorf("%w: an endorsement key is a restricted decryption key that is fixed to its TPM", ErrKey)
	}
	k := &EndorsementKey{area: *area, bytes: tpm2.Marshal(area)}
	return k, k.check()
}

func parse(public []byte) (area *tpm2.TPMTPublic, err error) {
	if len(public) == 0 || len(public) > MaxPublic {
		return nil, fmt.Errorf("%w: a public area of %d bytes", ErrKey, len(public))
	}
	defer func() {
		// The decoder works by reflection over types that the bytes name.
		if r := recover(); r != nil {
			area, err = nil, fmt.Errorf("%w: malformed public area", ErrKey)
		}
	}()
	area, err = tpm2.Unmarshal[tpm2.TPMTPublic](public)
	if err != nil {
		return nil, fmt.Errorf("%w: malformed public area", ErrKey)
	}
	return area, nil
}

// resident reports whether the key was made in a TPM and can't leave it, if the TPM is one.
func resident(a tpm2.TPMAObject) bool { return a.FixedTPM && a.FixedParent && a.SensitiveDataOrigin }

func (k *EndorsementKey) check() error {
	switch k.area.Type {
	case tpm2.TPMAlgRSA:
		p, err := k.area.Parameters.RSADetail()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrKey, err)
		}
		n, err := k.area.Unique.RSA()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrKey, err)
		}
		bits := int(p.KeyBits)
		ok := (bits == 2048 || bits == 3072) && len(n.Buffer)*8 == bits && n.Buffer[0]&0x80 != 0 &&
			n.Buffer[len(n.Buffer)-1]&1 == 1
		if !ok || p.Exponent != 0 && p.Exponent != 65537 {
			return fmt.Errorf("%w: an RSA endorsement key has 2048 or 3072 bits and the exponent 65537", ErrKey)
		}
	case tpm2.TPMAlgECC:
		p, err := k.area.Parameters.ECCDetail()
		if err != nil || p.CurveID != tpm2.TPMECCNistP256 && p.CurveID != tpm2.TPMECCNistP384 {
			return fmt.Errorf("%w: an ECC endorsement key is on P-256 or P-384", ErrKey)
		}
	default:
		return fmt.Errorf("%w: an endorsement key is RSA or ECC", ErrKey)
	}
	if h := k.area.NameAlg; h != tpm2.TPMAlgSHA256 && h != tpm2.TPMAlgSHA384 {
		return fmt.Errorf("%w: its name is by SHA-256 or SHA-384", ErrKey)
	}
	// A credential for it must be possible: this checks the curve's point and the symmetric parameters.
	_, _, err := k.credential(make([]byte, 34), make([]byte, SecretSize))
	return err
}

// Digest is the SHA-256 of the public area, by which the key is recorded.
func (k *EndorsementKey) Digest() [sha256.Size]byte { return sha256.Sum256(k.bytes) }

// Bytes is the public area.
func (k *EndorsementKey) Bytes() []byte { return k.bytes }

// PublicKey is the key in the form of package crypto.
func (k *EndorsementKey) PublicKey() (crypto.PublicKey, error) {
	key, err := tpm2.Pub(k.area)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return key, nil
}

// ParseAttestationKey reads a TPMT_PUBLIC and returns the name of the key, by which a credential is bound to it. The
// key must be a restricted signing key that never leaves its TPM.
func ParseAttestationKey(public []byte) (name []byte, err error) {
	area, err := parse(public)
	if err != nil {
		return nil, err
	}
	a := area.ObjectAttributes
	if !a.Restricted || !a.SignEncrypt || a.Decrypt || !resident(a) || area.NameAlg != tpm2.TPMAlgSHA256 {
		return nil,
			fmt.Errorf("%w: an attestation key is a restricted signing key that is fixed to its TPM, with a SHA-256 name",
				ErrKey)
	}
	n, err := tpm2.ObjectName(area)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return n.Buffer, nil
}

// credential encrypts a secret as TPM2_MakeCredential does. blob is a TPMS_ID_OBJECT, seed a TPMU_ENCRYPTED_SECRET,
// both without the size that goes before them on the wire.
func (k *EndorsementKey) credential(name, secret []byte) (blob, seed []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: its parameters fit no credential", ErrKey)
		}
	}()
	key, err := tpm2.ImportEncapsulationKey(&k.area)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	blob, seed, err = tpm2.CreateCredential(rand.Reader, key, name, secret)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return blob, seed, nil
}
