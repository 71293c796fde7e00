package tpmdevice

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/ingot-metal/ingot/internal/tpm"
)

// ErrNone is returned when the machine has no TPM 2.0.
var ErrNone = errors.New("the machine has no TPM 2.0")

// deviceNames are tried in this order. The first goes through the kernel's resource manager, which flushes what a
// process leaves behind; a TPM 1.2 has only the second.
var deviceNames = []string{"tpmrm0", "tpm0"}

// Device is an open TPM with both keys loaded.
type Device struct {
	tpm transport.TPMCloser
	ek  tpm2.NamedHandle
	ak  tpm2.NamedHandle
	// Endorsement and Attestation are public areas (TPMT_PUBLIC).
	Endorsement, Attestation []byte
	// Certificate is that of the endorsement key in DER, nil if the TPM holds none.
	Certificate []byte
}

// Open finds the TPM among the devices of a root directory, "/dev" as a rule. It fails with ErrNone if there is none.
func Open(dev string) (*Device, error) {
	for _, name := range deviceNames {
		f, err := os.OpenFile(filepath.Join(dev, name), os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("open TPM: %w", err)
		}
		return Load(f)
	}
	return nil, ErrNone
}

// Load makes the keys in a TPM that takes one command with each write and answers with one read. It closes conn if it
// fails.
func Load(conn io.ReadWriteCloser) (*Device, error) {
	d := &Device{tpm: transport.FromReadWriteCloser(conn)}
	if err := d.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare the TPM's keys: %w", err), d.Close())
	}
	return d, nil
}

func (d *Device) load() error {
	ek, err := d.endorsementKey()
	if err != nil {
		return err
	}
	d.ek, d.Endorsement = ek.handle, ek.public
	ak, err := d.create(tpm2.TPMRHNull, attestationTemplate)
	if err != nil {
		return fmt.Errorf("attestation key: %w", err)
	}
	d.ak, d.Attestation = ak.handle, ak.public
	d.Certificate = d.readCertificate(ek.certificate)
	return nil
}

// Where the certificates of endorsement keys are (TCG EK Credential Profile, section 2.2.1.4).
const (
	certificateRSA = tpm2.TPMHandle(0x01c00002)
	certificateECC = tpm2.TPMHandle(0x01c0000a)
)

type primary struct {
	handle      tpm2.NamedHandle
	public      []byte
	certificate tpm2.TPMHandle
}

// endorsementKey makes the RSA key, and the ECC key in a TPM that has no RSA. Any other failure must not change which
// key the machine is known by.
func (d *Device) endorsementKey() (primary, error) {
	p, err := d.create(tpm2.TPMRHEndorsement, tpm2.RSAEKTemplate)
	p.certificate = certificateRSA
	if errors.Is(err, tpm2.TPMRCAsymmetric) || errors.Is(err, tpm2.TPMRCValue) {
		p, err = d.create(tpm2.TPMRHEndorsement, tpm2.ECCEKTemplate)
		p.certificate = certificateECC
	}
	if err != nil {
		return p, fmt.Errorf("endorsement key: %w", err)
	}
	return p, nil
}

// attestationTemplate is a restricted ECDSA key on P-256.
var attestationTemplate = tpm2.TPMTPublic{
	Type:    tpm2.TPMAlgECC,
	NameAlg: tpm2.TPMAlgSHA256,
	ObjectAttributes: tpm2.TPMAObject{
		FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true, UserWithAuth: true, NoDA: true, Restricted: true,
		SignEncrypt: true,
	},
	Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{
		Scheme: tpm2.TPMTECCScheme{
			Scheme:  tpm2.TPMAlgECDSA,
			Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgECDSA, &tpm2.TPMSSigSchemeECDSA{HashAlg: tpm2.TPMAlgSHA256}),
		},
		CurveID: tpm2.TPMECCNistP256,
	}),
}

func (d *Device) create(hierarchy tpm2.TPMHandle, template tpm2.TPMTPublic) (primary, error) {
	r, err := tpm2.CreatePrimary{
		PrimaryHandle: tpm2.AuthHandle{Handle: hierarchy, Auth: tpm2.PasswordAuth(nil)}, InPublic: tpm2.New2B(template),
	}.Execute(d.tpm)
	if err != nil {
		return primary{}, err
	}
	return primary{handle: tpm2.NamedHandle{Handle: r.ObjectHandle, Name: r.Name}, public: r.OutPublic.Bytes()}, nil
}

// Activate releases the secret of a challenge; see tpm.Challenge.
func (d *Device) Activate(blob, seed []byte) ([]byte, error) {
	r, err := tpm2.ActivateCredential{
		ActivateHandle: tpm2.AuthHandle{Handle: d.ak.Handle, Name: d.ak.Name, Auth: tpm2.PasswordAuth(nil)},
		KeyHandle: tpm2.AuthHandle{
			Handle: d.ek.Handle, Name: d.ek.Name, Auth: tpm2.Policy(tpm2.TPMAlgSHA256, 16, endorsementPolicy),
		},
		CredentialBlob: tpm2.TPM2BIDObject{Buffer: blob},
		Secret:         tpm2.TPM2BEncryptedSecret{Buffer: seed},
	}.Execute(d.tpm)
	if err != nil {
		return nil, fmt.Errorf("activate credential: %w", err)
	}
	return r.CertInfo.Buffer, nil
}

// endorsementPolicy is the policy of the default templates: the authorization of the endorsement hierarchy, which is
// empty unless the machine's owner has set one.
func endorsementPolicy(t transport.TPM, session tpm2.TPMISHPolicy, nonce tpm2.TPM2BNonce) error {
	_, err := tpm2.PolicySecret{
		AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHEndorsement, Auth: tpm2.PasswordAuth(nil)}, PolicySession: session,
		NonceTPM: nonce,
	}.Execute(t)
	return err
}

// nvChunk is at most what any TPM returns at once (TPM_PT_NV_BUFFER_MAX is 512 at least).
const nvChunk = 512

// readCertificate returns nil if there is none that can be read: the key is then known by its first use.
func (d *Device) readCertificate(index tpm2.TPMHandle) []byte {
	info, err := tpm2.NVReadPublic{NVIndex: index}.Execute(d.tpm)
	if err != nil {
		return nil
	}
	public, err := info.NVPublic.Contents()
	if err != nil || public.DataSize > tpm.MaxCertificate {
		return nil
	}
	out := make([]byte, 0, public.DataSize)
	for len(out) < int(public.DataSize) {
		r, err := tpm2.NVRead{
			AuthHandle: tpm2.AuthHandle{Handle: index, Name: info.NVName, Auth: tpm2.PasswordAuth(nil)},
			NVIndex:    tpm2.NamedHandle{Handle: index, Name: info.NVName},
			Size:       uint16(min(nvChunk, int(public.DataSize)-len(out))), //nolint:gosec // at most nvChunk
			Offset:     uint16(len(out)),                                    //nolint:gosec // below a uint16's size
		}.Execute(d.tpm)
		if err != nil || len(r.Data.Buffer) == 0 {
			return nil
		}
		out = append(out, r.Data.Buffer...)
	}
	return trimmed(out)
}

// trimmed cuts what a TPM has padded behind a DER sequence with a length of two bytes.
func trimmed(der []byte) []byte {
	if len(der) < 4 || der[0] != 0x30 || der[1] != 0x82 {
		return nil
	}
	if n := 4 + int(binary.BigEndian.Uint16(der[2:])); n <= len(der) {
		return der[:n]
	}
	return nil
}

// Close flushes both keys and closes the device.
func (d *Device) Close() error {
	var errs []error
	for _, h := range []tpm2.NamedHandle{d.ek, d.ak} {
		if h.Handle == 0 {
			continue
		}
		if _, err := (tpm2.FlushContext{FlushHandle: h.Handle}).Execute(d.tpm); err != nil {
			errs = append(errs, fmt.Errorf("flush TPM key: %w", err))
		}
	}
	return errors.Join(append(errs, d.tpm.Close())...)
}
