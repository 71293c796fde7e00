package ca

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/pki"
)

const (
	version      = "v1" // of the first generation; those after it are v2, v3, …
	makingPrefix = ".making-"
	lockFile     = ".lock"

	rootCrt         = "root.crt"
	rootKey         = "root.key"
	intermediateCrt = "intermediate.crt"
	intermediateKey = "intermediate.key"
	crossCrt        = "cross.crt"
	grantKey        = "grant.key"
)

// keyring is the keys and certificates of one generation.
type keyring struct {
	root         *x509.Certificate
	intermediate *x509.Certificate
	signer       *ecdsa.PrivateKey // of the intermediate
	// rootSigner is nil where the root's key has been moved away or is of no use; rootErr is the reason.
	rootSigner *ecdsa.PrivateKey
	rootErr    error
	// cross are the intermediate's further certificates, signed by the roots of generations before it.
	cross []*x509.Certificate
	grant ed25519.PrivateKey // of the first generation only
}

// openKeyring loads the keys of the first generation. If there are none, it copies those of from, or makes them where
// from is empty.
func openKeyring(dir, from string, now time.Time) (k *keyring, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	unlock, err := lock(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := removeLeftovers(dir); err != nil {
		return nil, err
	}
	live := filepath.Join(dir, version)
	_, err = os.Lstat(live)
	if errors.Is(err, fs.ErrNotExist) {
		err = makeKeyring(dir, live, func(temp string) error {
			if from != "" {
				return copyKeyring(from, temp)
			}
			return writeKeyring(temp, now)
		})
	}
	if err != nil {
		return nil, err
	}
	if err := syncNames(dir); err != nil {
		return nil, err
	}
	if k, err = loadKeyring(live); err != nil || from == "" {
		return k, err
	}
	return k, sameKeys(from, k)
}

// syncNames makes the names of v1 and of the directory itself durable before anything is signed. It does so at
// every start, because the start that made them may have crashed before this.
func syncNames(dir string) error {
	return errors.Join(pki.SyncDir(dir), pki.SyncDir(filepath.Dir(filepath.Clean(dir))))
}

// lock keeps two controllers that start on one new directory from making a CA each. flock(2) ends with the
// process.
func lock(dir string) (unlock func() error, err error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	if err := flock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	return f.Close, nil
}

func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// removeLeftovers deletes what a crash left of keys in the making. Nothing was ever signed with them, since
// they are first loaded after the rename.
func removeLeftovers(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, makingPrefix+"*"))
	if err != nil {
		return fmt.Errorf("look for leftovers: %w", err)
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove leftover of a crash: %w", err)
		}
	}
	return nil
}

// Check reads the CA in a directory as New does, makes nothing, and returns when the certificates of its newest
// generation end.
func Check(dir string) (root, intermediate time.Time, err error) {
	k, err := loadKeyring(filepath.Join(dir, version))
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	later, err := loadLater(dir)
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	if len(later) > 0 {
		k = later[len(later)-1].keys
	}
	return k.root.NotAfter, k.intermediate.NotAfter, nil
}

// loadKeyring reads the first generation.
func loadKeyring(dir string) (*keyring, error) {
	k, err := loadPair(dir)
	if err != nil {
		return nil, err
	}
	if k.grant, err = loadGrantKey(dir); err != nil {
		return nil, err
	}
	return k, nil
}

// loadPair reads the root and the intermediate of a generation, with their keys.
func loadPair(dir string) (*keyring, error) {
	k := &keyring{}
	var err error
	if k.root, err = loadCert(dir, rootCrt); err != nil {
		return nil, err
	}
	if k.intermediate, err = loadCert(dir, intermediateCrt); err != nil {
		return nil, err
	}
	if k.signer, err = loadECDSA(dir, intermediateKey); err != nil {
		return nil, err
	}
	k.rootSigner, k.rootErr = loadRootKey(dir, k.root)
	if err := k.check(); err != nil {
		return nil, fmt.Errorf("check %s: %w", dir, err)
	}
	return k, nil
}

// loadRootKey is for the next rotation; nothing else needs the root's key.
func loadRootKey(dir string, root *x509.Certificate) (*ecdsa.PrivateKey, error) {
	if err := checkPrivate(dir, rootKey); err != nil {
		return nil, err
	}
	key, err := pki.LoadKey(filepath.Join(dir, rootKey))
	if err == nil && !key.PublicKey.Equal(root.PublicKey) {
		return nil, fmt.Errorf("%s does not belong to %s", rootKey, rootCrt)
	}
	return key, err
}

// check finds files of different CAs that were mixed up, as by a partial restore of a backup.
func (k *keyring) check() error {
	if !k.signer.PublicKey.Equal(k.intermediate.PublicKey) {
		return fmt.Errorf("%s does not belong to %s", intermediateKey, intermediateCrt)
	}
	if err := k.intermediate.CheckSignatureFrom(k.root); err != nil {
		return fmt.Errorf("%s was not signed by %s: %w", intermediateCrt, rootCrt, err)
	}
	return nil
}

func loadCert(dir, name string) (*x509.Certificate, error) {
	certs, err := pki.LoadCerts(filepath.Join(dir, name))
	if err != nil {
		return nil, refuse(dir, name, err)
	}
	if len(certs) != 1 || !certs[0].IsCA {
		return nil, refuse(dir, name, errors.New("want exactly one CA certificate in it"))
	}
	return certs[0], nil
}

func loadECDSA(dir, name string) (*ecdsa.PrivateKey, error) {
	if err := checkPrivate(dir, name); err != nil {
		return nil, err
	}
	key, err := pki.LoadKey(filepath.Join(dir, name))
	if err != nil {
		return nil, refuse(dir, name, err)
	}
	return key, nil
}

func loadGrantKey(dir string) (ed25519.PrivateKey, error) {
	if err := checkPrivate(dir, grantKey); err != nil {
		return nil, err
	}
	signer, err := pki.LoadSigner(filepath.Join(dir, grantKey))
	if err != nil {
		return nil, refuse(dir, grantKey, err)
	}
	key, ok := signer.(ed25519.PrivateKey)
	if !ok {
		return nil, refuse(dir, grantKey, fmt.Errorf("key is %T, want Ed25519", signer))
	}
	return key, nil
}

func checkPrivate(dir, name string) error {
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil {
		return refuse(dir, name, err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return refuse(dir, name, fmt.Errorf("mode is %#o, others than its owner can use it: want 0600", mode))
	}
	return nil
}

func refuse(dir, name string, err error) error {
	return fmt.Errorf("the CA in %s is not usable and is left as it is, restore it from a backup: %s: %w", dir, name, err)
}
