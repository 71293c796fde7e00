package installer

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	enrollv1 "github.com/ingot-metal/ingot/api/enroll/v1"

	"github.com/ingot-metal/ingot/agent/site/installerenrol"
	"github.com/ingot-metal/ingot/agent/tpmdevice"
	"github.com/ingot-metal/ingot/agent/transport"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/tpm"
)

const (
	// tpmTries and tpmWait bound how long a TPM that is there and does not work delays the start.
	tpmTries = 3
	tpmWait  = time.Second
	// proofTime bounds one call of ActivateCredential.
	proofTime = 30 * time.Second
)

// openTPM returns nil for a machine without a TPM that can be used. The controller decides whether it needs one.
func openTPM(ctx context.Context, cfg Config) *tpmdevice.Device {
	for try := 1; ; try++ {
		d, err := tpmdevice.Open(filepath.Join("/", cfg.Host.Root, "dev"))
		switch {
		case err == nil:
			return d
		case errors.Is(err, tpmdevice.ErrNone):
			return nil
		}
		cfg.Log.Warn("the machine's TPM cannot be used", "try", try, "error", err)
		if try == tpmTries {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-cfg.Clock.After(tpmWait):
		}
	}
}

// prove answers the site agent's challenge: the TPM releases its secret, and the controller issues the certificate for
// a proof by that secret over this very connection.
func (e *enroller) prove(
	ctx context.Context, csr, keyDigest []byte, a installerenrol.Answer, attempt int,
) (installerenrol.Answer, time.Duration, error) {
	c := a.Challenge
	if e.tpm == nil || len(c.Addresses) == 0 {
		return a, 0, errors.New("the site asks for the proof of a TPM that was not shown, or does not say where to bring it")
	}
	secret, err := e.tpm.Activate(c.CredentialBlob, c.EncryptedSeed)
	if err != nil {
		return a, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, proofTime)
	defer cancel()
	got, err := e.activate(ctx, a, c.Addresses[attempt%len(c.Addresses)], csr, keyDigest, secret)
	if err != nil {
		return a, failure.From(err).RetryAfter, finalNo(err)
	}
	a.CertificateChainPEM, a.TrustBundlePEM = string(got.GetCertificateChainPem()), string(got.GetTrustBundlePem())
	a.FleetAddresses, a.GrantKeys = got.GetFleetAddresses(), got.GetGrantKeys()
	a.AgentID, a.MachineID, a.OperationID = got.GetAgentId(), got.GetMachineId(), got.GetOperationId()
	return a, 0, nil
}

// activate calls the controller through the site. The trust bundle came in clear text: it is the proof that keeps
// another system from using this connection.
func (e *enroller) activate(
	ctx context.Context, a installerenrol.Answer, address string, csr, keyDigest, secret []byte,
) (*enrollv1.ActivateCredentialResponse, error) {
	certs, err := pki.DecodeCerts([]byte(a.TrustBundlePEM))
	if err != nil {
		return nil, fmt.Errorf("read trust bundle: %w", err)
	}
	roots := x509.NewCertPool()
	for _, c := range certs {
		roots.AddCert(c)
	}
	dial, err := transport.ViaProxy(cmp.Or(a.Proxy, e.boot.Site), transport.NetDialer())
	if err != nil {
		return nil, err
	}
	cfg, err := transport.ServerOnly(roots, address, e.now)
	if err != nil {
		return nil, err
	}
	conn, err := transport.Dial(address, cfg, dial, transport.Patience)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := conn.Close(); err != nil {
			e.log.Debug("close enrolment connection", "error", err)
		}
	}()
	state, err := conn.Connect(ctx)
	if err != nil {
		return nil, err
	}
	exported, err := tpm.Exported(state)
	if err != nil {
		return nil, err
	}
	return enrollv1.NewEnrollmentServiceClient(conn).ActivateCredential(ctx, &enrollv1.ActivateCredentialRequest{
		Challenge: a.Challenge.Sealed, Csr: csr,
		Proof: tpm.Proof(secret, tpm.Binding{Exported: exported, KeyDigest: keyDigest, Sealed: a.Challenge.Sealed}),
	})
}

// finalNo marks an error that another attempt can't change. A challenge that is too old is asked for again. So is one
// whose proof did not hold, which happens with a man in the middle.
func finalNo(err error) error {
	f := failure.From(err)
	switch {
	case f.Retryable || f.Reason == "TPM_CHALLENGE_EXPIRED":
		return err
	case f.Kind == failure.KindDenied || f.Kind == failure.KindPrecondition || f.Kind == failure.KindInvalid:
		return &Refused{Reason: f.Reason, Message: f.Message}
	}
	return err
}
