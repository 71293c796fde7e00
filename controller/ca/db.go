package ca

import (
	"crypto/x509"
	"errors"

	"github.com/smallstep/certificates/db"
)

var errNotKept = errors.New("certificates are not kept by the embedded authority")

// refusingDB is the database of the embedded authority. It stores nothing, since the controller's own database
// does, and calls every certificate revoked, so that the authority's own renewal, which would skip the
// controller's checks, always fails.
type refusingDB struct{}

var _ db.AuthDB = refusingDB{}

func (refusingDB) IsRevoked(string) (bool, error)                   { return true, nil }
func (refusingDB) IsSSHRevoked(string) (bool, error)                { return true, nil }
func (refusingDB) Revoke(*db.RevokedCertificateInfo) error          { return errNotKept }
func (refusingDB) RevokeSSH(*db.RevokedCertificateInfo) error       { return errNotKept }
func (refusingDB) GetCertificate(string) (*x509.Certificate, error) { return nil, errNotKept }
func (refusingDB) UseToken(string, string) (bool, error)            { return false, errNotKept }
func (refusingDB) IsSSHHost(string) (bool, error)                   { return false, errNotKept }
func (refusingDB) GetSSHHostPrincipals() ([]string, error)          { return nil, errNotKept }
func (refusingDB) Shutdown() error                                  { return nil }
