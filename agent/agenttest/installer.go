package agenttest

import (
	"context"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/internal/pki"
)

// Vouch is VouchInstaller for a site that has no agent. The installer becomes the agent that this controller grants to.
func (c *Controller) Vouch(
	ctx context.Context, r *fleetv1.VouchInstallerRequest,
) (*fleetv1.VouchInstallerResponse, error) {
	answer, err := (&fleet{c: c}).VouchInstaller(ctx, r)
	if err != nil {
		return nil, err
	}
	csr, err := pki.ParseCSR(r.GetCsr())
	if err != nil {
		return nil, err
	}
	answer.AgentId, answer.CertificateChainPem = c.AgentID, c.certify(csr.PublicKey)
	return answer, nil
}

// IssueIdentity implements the service: the next system is to enrol with the controller's only token.
func (f *fleet) IssueIdentity(context.Context, *fleetv1.IssueIdentityRequest) (*fleetv1.IssueIdentityResponse, error) {
	if h := f.c.hook().Identity; h != nil {
		if err := h(); err != nil {
			return nil, err
		}
	}
	return &fleetv1.IssueIdentityResponse{
		BootstrapBundle: f.c.Bundle(), TokenId: f.c.token.TokenID, MachineId: f.c.MachineID, Hostname: "n1",
	}, nil
}
