package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/controller/store/schema"
)

// format is the version of the file's layout.
const format = 1

// Names of members.
const (
	manifestName  = "manifest.json"
	configName    = "controller.yaml"
	tokensName    = "tokens"
	secretsName   = "secrets.key"
	tlsCertName   = "tls-cert.pem"
	tlsKeyName    = "tls-key.pem"
	tpmRootsName  = "tpm-roots.pem"
	bucketKeyName = "bucket-credentials"
	bucketCAName  = "bucket-ca.pem"
	dumpName      = "database.dump"
	caPrefix      = "ca/"
	imagePrefix   = "images/"
)

// Limits of what a file may claim.
const (
	maxManifest = 16 << 20
	// maxSmall bounds members that are held in memory.
	maxSmall = 4 << 20
)

var (
	memberName = regexp.MustCompile(`^(controller\.yaml|tokens|secrets\.key|tls-cert\.pem|tls-key\.pem|tpm-roots\.pem|` +
		`bucket-credentials|bucket-ca\.pem|database\.dump|ca(/[a-z0-9][a-z0-9.-]*){1,3}|images/[0-9a-f]{64})$`)
	digest = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// Member is one file of a backup.
type Member struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Manifest describes a backup and its members.
type Manifest struct {
	Format int `json:"format"`
	// Version is the program's.
	Version string    `json:"version"`
	Made    time.Time `json:"made"`
	// Schema is the version of the database's schema.
	Schema int `json:"schema"`
	// Server and Dump are the major versions of PostgreSQL and of its pg_dump.
	Server int `json:"server"`
	Dump   int `json:"dump"`
	// Members are in the order of the file.
	Members []Member `json:"members"`
	// LeftOut are the images that are not in the file.
	LeftOut []Member `json:"left_out,omitempty"`
}

// Images counts the files of the image store in the backup.
func (m Manifest) Images() (n int) {
	for _, member := range m.Members {
		if strings.HasPrefix(member.Name, imagePrefix) {
			n++
		}
	}
	return n
}

// parseManifest refuses what this program cannot restore, and every claim that no backup makes.
func parseManifest(raw []byte) (m Manifest, err error) {
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, fmt.Errorf("%s: %w", manifestName, err)
	}
	newest, err := schema.Newest()
	if err != nil {
		return m, err
	}
	if m.Format != format || m.Schema > newest {
		return m, fmt.Errorf("the backup is of ingot-controller %.40q with schema %d, and this program knows %d: "+
			"restore it with that version or a newer one", m.Version, m.Schema, newest)
	}
	if m.Schema < 1 || m.Server < 1 || m.Dump < m.Server {
		return m, errors.New("the manifest names no version of schema or PostgreSQL")
	}
	seen := map[string]bool{}
	for _, member := range m.Members {
		if seen[member.Name] {
			return m, fmt.Errorf("%q is there twice", member.Name)
		}
		if err := member.check(); err != nil {
			return m, err
		}
		seen[member.Name] = true
	}
	for _, name := range []string{configName, tokensName, secretsName, dumpName} {
		if !seen[name] {
			return m, fmt.Errorf("the backup lacks %s", name)
		}
	}
	if !slices.ContainsFunc(m.Members, func(m Member) bool { return strings.HasPrefix(m.Name, caPrefix) }) {
		return m, errors.New("the backup lacks the CA")
	}
	return m, nil
}

func (m Member) check() error {
	image, isImage := strings.CutPrefix(m.Name, imagePrefix)
	switch {
	case !memberName.MatchString(m.Name):
		return fmt.Errorf("%.80q is no name of a file in a backup", m.Name)
	case m.Size < 0 || m.small() && m.Size > maxSmall:
		return fmt.Errorf("%s has %d bytes", m.Name, m.Size)
	case !digest.MatchString(m.SHA256) || isImage && image != m.SHA256:
		return fmt.Errorf("%s has the digest %.80q", m.Name, m.SHA256)
	}
	return nil
}

// small reports whether the member is held in memory.
func (m Member) small() bool { return m.Name != dumpName && !strings.HasPrefix(m.Name, imagePrefix) }
