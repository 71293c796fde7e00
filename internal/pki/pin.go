package pki

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// ErrPin is returned when the server did not present the root that the bootstrap token pins.
var ErrPin = errors.New("server's CA is not the one that the token names")

// TLSConfigPinned is for an agent's first connection, when it trusts no CA but knows the hash of one. The server must
// send its root in its chain. At the time now() the chain must verify to exactly the root with that hash, for server
// authentication. It must be for serverName, a DNS name or an IP address.
func TLSConfigPinned(caHash [sha256.Size]byte, serverName string, now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: serverName,
		Time:       now,
		// The standard check needs a root up front. VerifyConnection below makes the same check with the root
		// taken from the chain by its hash; it runs on every handshake, resumed ones too.
		InsecureSkipVerify: true, //nolint:gosec // see above: the check is made, elsewhere
		VerifyConnection: func(cs tls.ConnectionState) error {
			return verifyPinned(cs.PeerCertificates, caHash, serverName, now())
		},
	}
}

func verifyPinned(chain []*x509.Certificate, caHash [sha256.Size]byte, serverName string, now time.Time) error {
	if serverName == "" {
		// x509 would skip the check of the name.
		return errors.New("verify server: no server name to check against")
	}
	root := findByHash(chain, caHash)
	if root == nil {
		return fmt.Errorf("verify server: %w", ErrPin)
	}
	opts := x509.VerifyOptions{
		DNSName:       serverName,
		Roots:         x509.NewCertPool(),
		Intermediates: x509.NewCertPool(),
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	opts.Roots.AddCert(root)
	for _, c := range chain[1:] {
		opts.Intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(opts); err != nil {
		return fmt.Errorf("verify server: %w", err)
	}
	return nil
}

// findByHash looks behind the leaf only: a leaf that happened to be pinned must not vouch for itself.
func findByHash(chain []*x509.Certificate, hash [sha256.Size]byte) *x509.Certificate {
	for i, c := range chain {
		if i > 0 && c.IsCA && sha256.Sum256(c.Raw) == hash {
			return c
		}
	}
	return nil
}
