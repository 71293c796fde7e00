package agent

import (
	"context"
	"slices"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/session"
	identitystore "github.com/ingot-metal/ingot/controller/store/identity"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/mediaproof"
	"github.com/ingot-metal/ingot/internal/pki"
)

const (
	// maxHold bounds one SyncSite call, siteLook is how often it looks for a newer document meanwhile.
	maxHold  = 30 * time.Second
	siteLook = 100 * time.Millisecond
	// identitySecret: 256 random bits.
	identitySecret = 32
)

// agentOf returns the agent that calls, by its certificate.
func agentOf(ctx context.Context) (auth.Agent, error) {
	who, ok := auth.AgentFrom(ctx)
	if !ok {
		return who, failure.Unauthenticated(auth.ReasonCertificateRequired, "a client certificate is required")
	}
	return who, nil
}

// caller is the session of the calling agent, which must be of the role: a certificate alone is not enough for what an
// older session of the same agent might still ask.
func (s *Server) caller(ctx context.Context, role string) (*session.Session, error) {
	who, err := agentOf(ctx)
	if err != nil {
		return nil, err
	}
	sess := s.cfg.Sessions.Get(who.ID)
	if sess == nil {
		return nil, failure.Unavailable("SESSION_UNKNOWN", "open a session on Commands first")
	}
	if sess.Role != role {
		return nil, failure.Denied("SCOPE_TOO_SMALL", "only agents of role %s may call this", role)
	}
	return sess, nil
}

// SyncSite takes what a site's agent has applied and seen, and answers with a newer document as soon as there is one.
func (s *Server) SyncSite(ctx context.Context, r *fleetv1.SyncSiteRequest) (*fleetv1.SyncSiteResponse, error) {
	sess, err := s.caller(ctx, "site")
	if err != nil {
		return nil, err
	}
	recorded, err := s.cfg.Store.Sites.RecordSite(ctx, sitestore.SiteReport{
		Site: sess.Site, AgentID: sess.AgentID, Applied: r.GetAppliedRevision(), BootAddresses: r.GetBootAddresses(),
		Leases: r.GetLeases(), LeasesSame: !r.GetLeasesChanged(), Unknown: r.GetUnknown(), BMCs: r.GetBmcs(),
		Segments:  r.GetSegments(),
		Providers: r.GetProviders(), Probes: r.GetProbes(), Hardware: r.GetHardware(),
	}, s.cfg.Clock.Now())
	if err != nil {
		return nil, err
	}
	for _, id := range recorded.Waiting {
		if _, err := s.cfg.Engine.Handle(ctx, id, operation.Evaluate{}); err != nil {
			return nil, err
		}
	}
	for _, c := range recorded.Power {
		if _, err := s.cfg.Engine.Handle(ctx, c.OperationID, c.Seen); err != nil {
			return nil, err
		}
	}
	return s.newerDocument(ctx, sess, r)
}

// newerDocument waits for a revision above the applied one.
func (s *Server) newerDocument(
	ctx context.Context, sess *session.Session, r *fleetv1.SyncSiteRequest,
) (*fleetv1.SyncSiteResponse, error) {
	until := s.cfg.Clock.Now().Add(min(maxHold, time.Duration(r.GetHoldMs())*time.Millisecond))
	for {
		revision, err := s.cfg.Store.Sites.SiteRevision(ctx, sess.Site)
		if err != nil {
			return nil, err
		}
		// A smaller one is news too, after a restore of the database.
		if revision != r.GetAppliedRevision() {
			return s.document(ctx, sess)
		}
		if !s.cfg.Clock.Now().Before(until) {
			return &fleetv1.SyncSiteResponse{}, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-sess.Context().Done():
			return nil, failure.Aborted("SESSION_SUPERSEDED", "the session has ended")
		case <-s.cfg.Draining.Done():
			return &fleetv1.SyncSiteResponse{}, nil
		case <-s.cfg.Clock.After(siteLook):
		}
	}
}

func (s *Server) document(ctx context.Context, sess *session.Session) (*fleetv1.SyncSiteResponse, error) {
	d, err := s.cfg.Store.Sites.SiteDocument(ctx, sess.Site)
	if err != nil {
		return nil, err
	}
	for _, a := range d.GetAssignments() {
		if a.Media != nil {
			a.Media.Secret = s.cfg.Installers.Secrets.MediaSecret(a.GetToken())
		}
	}
	d.ControllerAddresses = slices.Concat(s.cfg.FleetAddresses, s.cfg.EnrolmentAddresses)
	return &fleetv1.SyncSiteResponse{Document: d}, nil
}

// VouchInstaller certifies a netbooted system for one operation, on the word of its site's agent, or asks it for the
// proof that it holds the machine's TPM.
func (s *Server) VouchInstaller(
	ctx context.Context, r *fleetv1.VouchInstallerRequest,
) (*fleetv1.VouchInstallerResponse, error) {
	sess, err := s.caller(ctx, "site")
	if err != nil {
		return nil, err
	}
	csr, digest, err := ParseCSR(r.GetCsr())
	if err != nil {
		return nil, err
	}
	shown, err := s.cfg.Installers.shownTPM(r)
	if err != nil {
		return nil, err
	}
	req := identitystore.VouchRequest{
		SiteAgentID: sess.AgentID, MachineID: r.GetMachineId(), BootToken: r.GetBootToken(), MAC: r.GetMacAddress(),
		PublicKeyDigest: digest,
		TPM:             shown.key(), Hardware: r.GetHardwareFingerprint(),
		Media: mediaproof.Verify(s.cfg.Installers.Secrets.MediaSecret(r.GetBootToken()), r.GetBootToken(), digest,
			r.GetMediaProof()),
	}
	out, err := s.cfg.Installers.Certify(ctx, req, csr)
	if err != nil {
		return nil, err
	}
	if out.Challenge {
		answer, err := s.cfg.Installers.newChallenge(r, req, shown)
		if err == nil {
			answer.MachineId, answer.OperationId, answer.EnrolmentAddresses = out.MachineID, out.OperationID,
				s.cfg.EnrolmentAddresses
		}
		return answer, err
	}
	s.cfg.Logger.Info("installer certified", "agent_id", out.AgentID, "machine_id", out.MachineID, "operation_id",
		out.OperationID,
		"mac", r.GetMacAddress(), "address", r.GetAddress())
	return &fleetv1.VouchInstallerResponse{
		AgentId: out.AgentID, MachineId: out.MachineID, OperationId: out.OperationID, CertificateChainPem: out.ChainPEM,
		TrustBundlePem: s.cfg.CA.RootPEM(), FleetAddresses: s.cfg.FleetAddresses,
		GrantKeys: [][]byte{grantPublicKey(s.cfg.CA)},
	}, nil
}

// IssueIdentity gives an installer what the system that it writes needs to enrol, and a site agent what one needs that
// a provider deploys for it.
func (s *Server) IssueIdentity(
	ctx context.Context, r *fleetv1.IssueIdentityRequest,
) (*fleetv1.IssueIdentityResponse, error) {
	sess, err := s.caller(ctx, "installer")
	if err != nil {
		sess, err = s.caller(ctx, "site")
	}
	if err != nil {
		return nil, err
	}
	now := s.cfg.Clock.Now()
	tokenID, secret := ids.New(ids.Token), ids.Secret(identitySecret)
	bundle, err := pki.Bundle{
		TokenID: tokenID, Secret: secret, CAHash: s.cfg.CA.RootHash(), Addresses: s.cfg.EnrolmentAddresses, IssuedAt: now,
	}.Encode()
	if err != nil {
		return nil, err
	}
	out, err := s.cfg.Store.Identities.IssueIdentity(ctx, sess.AgentID, r.GetCommandId(), tokenID, secret, now)
	if err != nil {
		return nil, err
	}
	var seed []byte
	if out.SeedID != "" {
		if seed, err = s.cfg.Secrets.OpenSeed(out.SeedID, out.SealedSeed); err != nil {
			return nil, s.sealed(err, "the new system's seed", out.SeedID)
		}
	}
	answer := &fleetv1.IssueIdentityResponse{
		MachineId: out.MachineID, Hostname: out.MachineID, ImageRef: out.ImageRef, ImageDigest: out.ImageDigest, Seed: seed,
	}
	if out.Agentless {
		answer.PhoneHomeSecret = secret
		return answer, nil
	}
	answer.BootstrapBundle, answer.TokenId = bundle, tokenID
	return answer, nil
}
