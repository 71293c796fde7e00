package ca

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/pki"
)

const (
	year                 = 365 * 24 * time.Hour
	rootLifetime         = 20 * year
	intermediateLifetime = 10 * year

	// caBackdate is wider than a leaf's, so that it bounds none.
	caBackdate = 24 * time.Hour
)

var (
	fpHalfMade     = failpoint.Register("ca.half-made")
	fpBeforeRename = failpoint.Register("ca.before-rename")
	fpAfterRename  = failpoint.Register("ca.after-rename")
)

// makeKeyring has all keys written under a temporary name and renames them in one step. It leaves the temporary
// directory behind when it fails, as a crash does; the next start removes it.
func makeKeyring(dir, live string, write func(temp string) error) error {
	temp, err := os.MkdirTemp(dir, makingPrefix+"*")
	if err != nil {
		return fmt.Errorf("make CA: %w", err)
	}
	if err := write(temp); err != nil {
		return fmt.Errorf("make CA: %w", err)
	}
	if err := fpBeforeRename.Hit(); err != nil {
		return err
	}
	if err := os.Rename(temp, live); err != nil {
		return fmt.Errorf("make CA: %w", err)
	}
	return fpAfterRename.Hit()
}

func writeKeyring(dir string, now time.Time) error {
	rootSigner, root, err := makeRoot("Ingot Root CA", now)
	if err != nil {
		return err
	}
	if err := store(dir, rootKey, rootCrt, rootSigner, root); err != nil {
		return err
	}
	if err := fpHalfMade.Hit(); err != nil {
		return err
	}
	signer, intermediate, err := makeIntermediate("Ingot Intermediate CA", now, root, rootSigner)
	if err != nil {
		return err
	}
	if err := store(dir, intermediateKey, intermediateCrt, signer, intermediate); err != nil {
		return err
	}
	_, grant, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("generate grant key: %w", err)
	}
	return pki.StoreKey(filepath.Join(dir, grantKey), grant)
}

func store(dir, keyName, certName string, key *ecdsa.PrivateKey, cert *x509.Certificate) error {
	if err := pki.StoreKey(filepath.Join(dir, keyName), key); err != nil {
		return err
	}
	return pki.StoreCerts(filepath.Join(dir, certName), cert)
}

func makeRoot(name string, now time.Time) (*ecdsa.PrivateKey, *x509.Certificate, error) {
	template := caTemplate(name, rootLifetime, now)
	template.MaxPathLen = 1
	return signCA(template, nil, nil)
}

func makeIntermediate(
	name string, now time.Time, root *x509.Certificate, rootSigner *ecdsa.PrivateKey,
) (*ecdsa.PrivateKey, *x509.Certificate, error) {
	template := caTemplate(name, intermediateLifetime, now)
	template.MaxPathLenZero = true
	return signCA(template, root, rootSigner)
}

func caTemplate(name string, lifetime time.Duration, now time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{"Ingot"}, CommonName: name},
		NotBefore:             now.Add(-caBackdate).UTC().Truncate(time.Second),
		NotAfter:              now.Add(lifetime).UTC().Truncate(time.Second),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
}

// signCA makes a key and its certificate; without a parent the certificate signs itself.
func signCA(
	template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey,
) (*ecdsa.PrivateKey, *x509.Certificate, error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, nil, err
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return nil, nil, fmt.Errorf("sign %s: %w", template.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("read back %s: %w", template.Subject.CommonName, err)
	}
	return key, cert, nil
}
