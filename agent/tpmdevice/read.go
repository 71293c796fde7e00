package tpmdevice

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/ingot-metal/ingot/internal/tpm"
)

// ErrNotKept is of a TPM that keeps neither the certificate of its endorsement key nor the key itself. To make the key
// anew takes a TPM half a minute, so that a running system doesn't.
var ErrNotKept = errors.New("the TPM keeps neither its endorsement key nor a certificate of it")

// readTime bounds each read of a TPM, where the device can be waited for.
const readTime = 5 * time.Second

// KeptKey returns the digest (tpm.EndorsementKey.Digest, in lower-case hex) of the endorsement key that the TPM among
// the devices of a root directory keeps. It makes no key, and changes nothing. It fails with ErrNone where there is no
// TPM 2.0 behind the kernel's resource manager, and with ErrNotKept.
func KeptKey(dev string) (string, error) {
	f, err := os.OpenFile(filepath.Join(dev, deviceNames[0]), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return "", ErrNone
	}
	if err != nil {
		return "", fmt.Errorf("open TPM: %w", err)
	}
	_ = f.SetDeadline(time.Now().Add(readTime)) // some kernels' devices cannot be waited for
	digest, err := ReadKeptKey(f)
	return digest, errors.Join(err, f.Close())
}

// ReadKeptKey is KeptKey of a TPM that takes one command with each write and answers with one read.
func ReadKeptKey(conn io.ReadWriter) (string, error) {
	d := &Device{tpm: transport.FromReadWriteCloser(leftOpen{conn})}
	for _, public := range []func() []byte{d.certifiedKey, d.persistentKey} {
		if key, err := tpm.ParseEndorsementKey(public()); err == nil {
			digest := key.Digest()
			return hex.EncodeToString(digest[:]), nil
		}
	}
	return "", ErrNotKept
}

// leftOpen is closed by its owner.
type leftOpen struct{ io.ReadWriter }

// Close implements io.Closer.
func (leftOpen) Close() error { return nil }

// certifiedKey returns the public area of the RSA key that the certificate names: all but its modulus is the default
// template's, whose certificate it is (TCG EK Credential Profile, section 2.2.1.4).
func (d *Device) certifiedKey() []byte {
	cert, err := x509.ParseCertificate(d.readCertificate(certificateRSA))
	if err != nil {
		return nil
	}
	key, ok := cert.PublicKey.(*rsa.PublicKey)
	if !ok {
		return nil
	}
	area := tpm2.RSAEKTemplate
	area.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgRSA, &tpm2.TPM2BPublicKeyRSA{Buffer: key.N.Bytes()})
	return tpm2.Marshal(area)
}

// persistent is where the RSA endorsement key of the default template is kept (TCG TPM v2.0 Provisioning Guidance,
// section 7.8).
const persistent = tpm2.TPMHandle(0x81010001)

// persistentKey returns the public area of the key there, nil for one of another template.
func (d *Device) persistentKey() []byte {
	r, err := tpm2.ReadPublic{ObjectHandle: persistent}.Execute(d.tpm)
	if err != nil {
		return nil
	}
	area, err := r.OutPublic.Contents()
	if err != nil {
		return nil
	}
	plain := *area
	plain.Unique = tpm2.RSAEKTemplate.Unique
	if !bytes.Equal(tpm2.Marshal(plain), tpm2.Marshal(tpm2.RSAEKTemplate)) {
		return nil
	}
	return tpm2.Marshal(area)
}
