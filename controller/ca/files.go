package ca

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ingot-metal/ingot/internal/pki"
)

// MakeFiles writes the files of a new CA's first generation into a directory, for Config.From of several controllers.
func MakeFiles(dir string, now time.Time) error { return writeKeyring(dir, now) }

// copyKeyring copies the first generation out of a directory that may be mounted: its files may be links, and others
// than their owner may be able to read them. It copies nothing that it could not load.
func copyKeyring(from, into string) error {
	for _, name := range []string{rootCrt, rootKey, intermediateCrt, intermediateKey, grantKey} {
		raw, err := os.ReadFile(filepath.Join(from, name))
		if name == rootKey && errors.Is(err, fs.ErrNotExist) {
			continue // it was moved away
		}
		if err != nil {
			return fmt.Errorf("copy the CA of %s: %w", from, err)
		}
		mode := fs.FileMode(0o600)
		if filepath.Ext(name) == ".crt" {
			mode = 0o644
		}
		if err := pki.WriteFile(filepath.Join(into, name), raw, mode); err != nil {
			return fmt.Errorf("copy the CA of %s: %w", from, err)
		}
	}
	if _, err := loadKeyring(into); err != nil {
		return fmt.Errorf("copy the CA of %s: %w", from, err)
	}
	return nil
}

// sameKeys returns an error if the files of a directory are of another CA than a loaded one. Agents trust one of them.
func sameKeys(from string, k *keyring) error {
	root, err := loadCert(from, rootCrt)
	if err != nil {
		return err
	}
	intermediate, err := loadCert(from, intermediateCrt)
	if err != nil {
		return err
	}
	grant, err := pki.LoadSigner(filepath.Join(from, grantKey))
	if err != nil {
		return refuse(from, grantKey, err)
	}
	key, ok := grant.(ed25519.PrivateKey)
	if !ok || !root.Equal(k.root) || !intermediate.Equal(k.intermediate) || !key.Equal(k.grant) {
		return fmt.Errorf("%s has another CA than the data directory: agents trust one of the two", from)
	}
	return nil
}
