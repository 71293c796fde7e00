package enroll

import (
	"context"
	"crypto/ed25519"
	"crypto/subtle"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	enrollv1 "github.com/ingot-metal/ingot/api/enroll/v1"
	"github.com/ingot-metal/ingot/controller/api/agent"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/tpm"
)

// maxChallenge bounds a sealed challenge in bytes; ours have about 700.
const maxChallenge = 4 << 10

// ActivateCredential certifies an installer whose TPM has released the secret of its challenge. Package internal/tpm
// describes what the proof binds. Before it holds, the call costs a decryption and an HMAC, and reads nothing.
func (s *Server) ActivateCredential(
	ctx context.Context, r *enrollv1.ActivateCredentialRequest,
) (*enrollv1.ActivateCredentialResponse, error) {
	if len(r.GetChallenge()) > maxChallenge {
		return nil, failure.Invalid("INVALID_FIELD", "challenge: longer than %d bytes", maxChallenge).WithField("challenge",
			"too long")
	}
	csr, digest, err := agent.ParseCSR(r.GetCsr())
	if err != nil {
		return nil, err
	}
	c, err := s.cfg.Installers.OpenChallenge(r.GetChallenge())
	if err != nil {
		return nil, err
	}
	if err := activated(ctx, c, digest, r); err != nil {
		return nil, err
	}
	out, err := s.cfg.Installers.Certify(ctx, c.Request(), csr)
	if err != nil {
		return nil, err
	}
	s.cfg.Installers.Logger.Info("installer certified by its TPM", "agent_id", out.AgentID, "machine_id", out.MachineID,
		"operation_id", out.OperationID, "mac", c.MAC)
	key, ok := s.cfg.CA.GrantKey().Public().(ed25519.PublicKey)
	if !ok {
		panic("enrol API: the grant key is not Ed25519")
	}
	return &enrollv1.ActivateCredentialResponse{
		AgentId: out.AgentID, MachineId: out.MachineID, OperationId: out.OperationID, CertificateChainPem: out.ChainPEM,
		TrustBundlePem: s.cfg.CA.RootPEM(), FleetAddresses: s.cfg.FleetAddresses, GrantKeys: [][]byte{key},
	}, nil
}

// activated checks the proof on this connection, for the key that the challenge was asked for.
func activated(ctx context.Context, c agent.Challenge, digest []byte, r *enrollv1.ActivateCredentialRequest) error {
	refused := failure.Unauthenticated("TPM_PROOF_INVALID",
		"the proof does not hold for this challenge and key on this connection; ask the site for another challenge")
	p, ok := peer.FromContext(ctx)
	if !ok {
		return refused
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || subtle.ConstantTimeCompare(c.KeyDigest, digest) != 1 {
		return refused
	}
	exported, err := tpm.Exported(info.State)
	if err != nil {
		return refused.Wrap(err)
	}
	err = tpm.Verify(c.Secret, tpm.Binding{Exported: exported, KeyDigest: digest, Sealed: r.GetChallenge()}, r.GetProof())
	if err != nil {
		return refused.Wrap(err)
	}
	return nil
}
