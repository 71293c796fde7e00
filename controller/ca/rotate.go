package ca

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/pki"
)

// ErrNoRootKey is returned when the key of a root in force is not here, without which the next CA cannot be certified.
var ErrNoRootKey = errors.New("the root's key has been moved away")

var (
	fpNextHalfMade     = failpoint.Register("ca.next-half-made")
	fpNextBeforeRename = failpoint.Register("ca.next-before-rename")
)

// Record is a generation in the form in which controllers hand it to each other. Keys are secret.
type Record struct {
	Generation int
	// Root, Intermediate and Cross are PEM.
	Root, Intermediate, Cross []byte
	// Keys are those of the root, if it is known, and of the intermediate, in PEM. They are empty for the first
	// generation, whose keys are in every controller's directory.
	Keys               []byte
	Created, Withdrawn time.Time
	// Vouched is until when its root is vouched for, once it is withdrawn.
	Vouched time.Time
}

// Hash is the SHA-256 of the root in DER, lower hex, and Ends when the intermediate does.
func (r Record) Hash() (hash string, ends time.Time, err error) {
	root, err := pki.DecodeCerts(r.Root)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("read root of generation %d: %w", r.Generation, err)
	}
	intermediate, err := pki.DecodeCerts(r.Intermediate)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("read intermediate of generation %d: %w", r.Generation, err)
	}
	sum := sha256.Sum256(root[0].Raw)
	return hex.EncodeToString(sum[:]), intermediate[0].NotAfter, nil
}

// Next makes the keys and certificates of the next generation. It stores nothing: the generation is in force after
// Follow.
func (a *Authority) Next(now time.Time) (Record, error) {
	all := a.generations()
	number := all[len(all)-1].number + 1
	name := " " + strconv.Itoa(number)
	rootSigner, root, err := makeRoot("Ingot Root CA"+name, now)
	if err != nil {
		return Record{}, err
	}
	key, intermediate, err := makeIntermediate("Ingot Intermediate CA"+name, now, root, rootSigner)
	if err != nil {
		return Record{}, err
	}
	k := &keyring{root: root, intermediate: intermediate, signer: key, rootSigner: rootSigner}
	for _, g := range all {
		switch {
		case g.keys.rootSigner != nil:
			c, err := crossSign(intermediate, g.keys, now)
			if err != nil {
				return Record{}, err
			}
			k.cross = append(k.cross, c)
		case g.inForce():
			return Record{}, fmt.Errorf("%w: generation %d: %w", ErrNoRootKey, g.number, g.keys.rootErr)
		}
	}
	return record(number, k)
}

// crossSign certifies another generation's intermediate with a root, so that who trusts this root alone can verify what
// the intermediate signs.
func crossSign(intermediate *x509.Certificate, by *keyring, now time.Time) (*x509.Certificate, error) {
	template := caTemplate(intermediate.Subject.CommonName, intermediateLifetime, now)
	template.MaxPathLenZero = true
	template.SubjectKeyId = intermediate.SubjectKeyId
	if template.NotAfter.After(by.root.NotAfter) {
		template.NotAfter = by.root.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.root, intermediate.PublicKey, by.rootSigner)
	if err != nil {
		return nil, fmt.Errorf("vouch for %s: %w", intermediate.Subject.CommonName, err)
	}
	return x509.ParseCertificate(der)
}

func record(number int, k *keyring) (Record, error) {
	r := Record{Generation: number, Root: pki.EncodeCerts(k.root), Intermediate: pki.EncodeCerts(k.intermediate),
		Cross: pki.EncodeCerts(k.cross...)}
	if number == 1 {
		return r, nil
	}
	for _, key := range []*ecdsa.PrivateKey{k.signer, k.rootSigner} {
		if key == nil {
			continue
		}
		text, err := pki.EncodeKey(key)
		if err != nil {
			return Record{}, err
		}
		r.Keys = append(r.Keys, text...)
	}
	return r, nil
}

// Records are the generations of this directory.
func (a *Authority) Records() ([]Record, error) {
	var out []Record
	for _, g := range a.generations() {
		r, err := record(g.number, g.keys)
		if err != nil {
			return nil, err
		}
		r.Created, r.Withdrawn, r.Vouched = g.created, g.withdrawn, g.vouched
		out = append(out, r)
	}
	return out, nil
}

// Follow takes over the records of all generations. A new one is durable on the disk before it counts. So this
// controller starts with it also while the database is away. changed reports whether there was a new one.
func (a *Authority) Follow(records []Record) (changed bool, err error) {
	all := slices.Clone(a.generations())
	for _, r := range records {
		i := slices.IndexFunc(all, func(g *generation) bool { return g.number == r.Generation })
		if i < 0 {
			g, err := a.adopt(r)
			if err != nil {
				return false, fmt.Errorf("take over generation %d of the CA: %w", r.Generation, err)
			}
			i, all = len(all), append(all, g)
			changed = true
		}
		g := *all[i]
		if !bytesEqual(pki.EncodeCerts(g.keys.root), r.Root) {
			return false, fmt.Errorf("generation %d of the CA: %w: %s", r.Generation, ErrOther, a.dir)
		}
		if g.created.Equal(r.Created) && g.withdrawn.Equal(r.Withdrawn) && g.vouched.Equal(r.Vouched) {
			continue
		}
		g.created, g.withdrawn, g.vouched = r.Created, r.Withdrawn, r.Vouched
		all[i], changed = &g, true
	}
	if !changed {
		return false, nil
	}
	slices.SortFunc(all, func(x, y *generation) int { return x.number - y.number })
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = all
	a.changed++
	return true, nil
}

func bytesEqual(a, b []byte) bool {
	return strings.TrimSpace(string(a)) == strings.TrimSpace(string(b))
}

// adopt stores a generation on the disk and reads it back.
func (a *Authority) adopt(r Record) (g *generation, err error) {
	k, err := parseRecord(r)
	if err != nil {
		return nil, err
	}
	unlock, err := lock(a.dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	live := filepath.Join(a.dir, generationDir(r.Generation))
	if _, err := os.Lstat(live); err != nil {
		if err := storeGeneration(a.dir, live, k); err != nil {
			return nil, err
		}
	}
	if err := syncNames(a.dir); err != nil {
		return nil, err
	}
	return loadGeneration(a.dir, r.Generation)
}

func generationDir(number int) string { return "v" + strconv.Itoa(number) }

func parseRecord(r Record) (*keyring, error) {
	root, err := pki.DecodeCerts(r.Root)
	if err != nil {
		return nil, err
	}
	intermediate, err := pki.DecodeCerts(r.Intermediate)
	if err != nil {
		return nil, err
	}
	k := &keyring{root: root[0], intermediate: intermediate[0]}
	if len(r.Cross) > 0 {
		if k.cross, err = pki.DecodeCerts(r.Cross); err != nil {
			return nil, err
		}
	}
	for block, rest := pem.Decode(r.Keys); block != nil; block, rest = pem.Decode(rest) {
		signer, err := pki.DecodeKey(pem.EncodeToMemory(block))
		if err != nil {
			return nil, err
		}
		key, ok := signer.(*ecdsa.PrivateKey)
		switch {
		case !ok:
			return nil, fmt.Errorf("key is %T, want ECDSA", signer)
		case key.PublicKey.Equal(k.intermediate.PublicKey):
			k.signer = key
		case key.PublicKey.Equal(k.root.PublicKey):
			k.rootSigner = key
		}
	}
	if k.signer == nil {
		return nil, errors.New("the intermediate's key is missing")
	}
	return k, k.check()
}

// storeGeneration writes all files under a temporary name and renames them in one step, as for the first.
func storeGeneration(dir, live string, k *keyring) error {
	temp, err := os.MkdirTemp(dir, makingPrefix+"*")
	if err != nil {
		return err
	}
	if err := store(temp, intermediateKey, intermediateCrt, k.signer, k.intermediate); err != nil {
		return err
	}
	if err := fpNextHalfMade.Hit(); err != nil {
		return err
	}
	if err := pki.StoreCerts(filepath.Join(temp, rootCrt), k.root); err != nil {
		return err
	}
	if k.rootSigner != nil {
		if err := pki.StoreKey(filepath.Join(temp, rootKey), k.rootSigner); err != nil {
			return err
		}
	}
	if len(k.cross) > 0 {
		if err := pki.StoreCerts(filepath.Join(temp, crossCrt), k.cross...); err != nil {
			return err
		}
	}
	if err := fpNextBeforeRename.Hit(); err != nil {
		return err
	}
	return os.Rename(temp, live)
}

func loadGeneration(dir string, number int) (*generation, error) {
	at := filepath.Join(dir, generationDir(number))
	k, err := loadPair(at)
	if err != nil {
		return nil, err
	}
	k.cross, err = pki.LoadCerts(filepath.Join(at, crossCrt))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, refuse(at, crossCrt, err)
	}
	return newGeneration(number, k)
}

// openGenerations loads all generations of a directory, and makes or copies the first where there is none.
func openGenerations(dir, from string, now time.Time) ([]*generation, error) {
	first, err := openKeyring(dir, from, now)
	if err != nil {
		return nil, err
	}
	g, err := newGeneration(1, first)
	if err != nil {
		return nil, err
	}
	later, err := loadLater(dir)
	return append([]*generation{g}, later...), err
}

// loadLater loads the generations behind the first.
func loadLater(dir string) (out []*generation, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "v*"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		number, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(name), "v"))
		if err != nil || number < 2 {
			continue
		}
		g, err := loadGeneration(dir, number)
		if err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	slices.SortFunc(out, func(x, y *generation) int { return x.number - y.number })
	return out, nil
}
