package controller

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"

	"github.com/ingot-metal/ingot/internal/tpm"
)

// tpmRoots reads the vendors of TPMs that an admin trusts.
func (c *Controller) tpmRoots() (tpm.Roots, error) {
	path := c.cfg.TPMRootsFile
	if path == "" {
		return tpm.Roots{}, nil
	}
	rest, err := os.ReadFile(path)
	if err != nil {
		return tpm.Roots{}, fmt.Errorf("read tpm_roots_file: %w", err)
	}
	var list []*x509.Certificate
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return tpm.Roots{}, fmt.Errorf("read tpm_roots_file %s: certificate %d: %w", path, len(list)+1, err)
		}
		list = append(list, cert)
	}
	if len(list) == 0 {
		return tpm.Roots{}, fmt.Errorf("read tpm_roots_file %s: no certificate in it", path)
	}
	return tpm.ParseRoots(list), nil
}
