package agent

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/secret"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/pki"
)

// joinTokenLife is how long a cluster takes the token of a join: longer than the machine's agent needs to come and ask,
// and shorter than anybody would find a use for it.
const joinTokenLife = 15 * time.Minute

// GetClusterAccess gives a site agent what it speaks to a cluster with.
func (s *Server) GetClusterAccess(
	ctx context.Context, r *fleetv1.GetClusterAccessRequest,
) (*fleetv1.GetClusterAccessResponse, error) {
	sess, err := s.caller(ctx, "site")
	if err != nil {
		return nil, err
	}
	c, err := s.cfg.Store.Credentials.ClusterFor(ctx, sess.AgentID, r.GetCommandId(), s.cfg.Clock.Now())
	if err != nil {
		return nil, err
	}
	plain, err := s.cfg.Secrets.OpenCluster(c.Ref, c.Sealed)
	if errors.Is(err, secret.ErrSealed) {
		s.cfg.Logger.Error("cluster credentials cannot be opened: set the cluster again, or bring back the key file",
			"cluster_ref", c.Ref)
		return nil, failure.NotFound("CREDENTIALS_NOT_FOUND",
			"this controller does not have the key of the credentials of cluster %q", c.Ref)
	}
	if err != nil {
		return nil, err
	}
	out := &fleetv1.GetClusterAccessResponse{
		Server: c.Server, CaPem: c.CAPEM, BearerToken: plain.Token, ClientCertificatePem: plain.CertificatePEM,
		ClientKeyPem: plain.KeyPEM,
		Version:      c.Version,
	}
	if c.Join != "" {
		out.JoinToken = s.joinToken(c.Join)
	}
	return out, nil
}

// GetJoinMaterial gives a machine's own agent what it joins a cluster with.
func (s *Server) GetJoinMaterial(
	ctx context.Context, r *fleetv1.GetJoinMaterialRequest,
) (*fleetv1.GetJoinMaterialResponse, error) {
	sess, err := s.caller(ctx, "host")
	if err != nil {
		return nil, err
	}
	c, err := s.cfg.Store.Credentials.ClusterFor(ctx, sess.AgentID, r.GetCommandId(), s.cfg.Clock.Now())
	if err != nil {
		return nil, err
	}
	if c.Join == "" {
		return nil, failure.Precondition("GRANT_REFUSED", "command %s joins no cluster", r.GetCommandId())
	}
	server, err := url.Parse(c.Server)
	if err != nil {
		return nil, fmt.Errorf("read the server of cluster %s: %w", c.Ref, err)
	}
	hashes, err := pki.KeyHashes(c.CAPEM)
	if err != nil {
		return nil, fmt.Errorf("read the CA of cluster %s: %w", c.Ref, err)
	}
	return &fleetv1.GetJoinMaterialResponse{ApiServer: server.Host, CaHashes: hashes, JoinToken: s.joinToken(c.Join)}, nil
}

// joinToken is the same for every command of one join.
func (s *Server) joinToken(join string) *fleetv1.JoinToken {
	id, secret := s.cfg.Secrets.JoinToken(join)
	return &fleetv1.JoinToken{Id: id, Secret: secret, LifetimeSeconds: int32(joinTokenLife.Seconds())}
}
