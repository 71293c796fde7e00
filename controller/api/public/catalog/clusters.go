package catalog

import (
	"context"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/secret"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/pki"
)

// SetCluster implements ClusterService.
func (s *Server) SetCluster(ctx context.Context, r *baremetalv1.SetClusterRequest) (*baremetalv1.Cluster, error) {
	if err := validate.Cluster(r); err != nil {
		return nil, err
	}
	sealed := s.Config.Secrets.SealCluster(r.GetClusterRef(), secret.Cluster{
		Token: r.GetBearerToken(), CertificatePEM: r.GetClientCertificatePem(), KeyPEM: r.GetClientKeyPem(),
	})
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	stored, err := s.stores.Credentials.SetCluster(ctx, credentialstore.SealedCluster{
		Ref: r.GetClusterRef(), Server: r.GetServer(), CAPEM: r.GetCaPem(), Sealed: sealed,
	}, service.Actor(ctx), s.Clock.Now(), opts...)
	if err != nil {
		return nil, err
	}
	return s.cluster(stored), nil
}

// GetCluster implements ClusterService.
func (s *Server) GetCluster(ctx context.Context, r *baremetalv1.GetClusterRequest) (*baremetalv1.Cluster, error) {
	if err := validate.Key("cluster_ref", r.GetClusterRef()); err != nil {
		return nil, err
	}
	c, err := s.stores.Credentials.GetCluster(ctx, r.GetClusterRef())
	if err != nil {
		return nil, err
	}
	return s.cluster(c), nil
}

// ListClusters implements ClusterService.
func (s *Server) ListClusters(
	ctx context.Context, r *baremetalv1.ListClustersRequest,
) (*baremetalv1.ListClustersResponse, error) {
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.Cluster]{
		Name: "clusters", Short: true,
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.Cluster, error) {
			all, err := s.stores.Credentials.ListClusters(ctx, after.ID, limit)
			return service.Each(all, err, s.cluster)
		},
		Place: service.ByID((*baremetalv1.Cluster).GetClusterRef),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListClustersResponse{Clusters: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// DeleteCluster implements ClusterService.
func (s *Server) DeleteCluster(ctx context.Context, r *baremetalv1.DeleteClusterRequest) (*baremetalv1.Cluster, error) {
	if err := validate.Key("cluster_ref", r.GetClusterRef()); err != nil {
		return nil, err
	}
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	gone, err := s.stores.Credentials.DeleteCluster(ctx, r.GetClusterRef(), service.Actor(ctx), s.Clock.Now(), opts...)
	if err != nil {
		return nil, err
	}
	return s.cluster(gone), nil
}

// cluster shows a cluster without its credentials. Where the key is lost, their kind stays empty: they must be set
// again.
func (s *Server) cluster(c credentialstore.SealedCluster) *baremetalv1.Cluster {
	out := &baremetalv1.Cluster{ClusterRef: c.Ref, Server: c.Server, CaPem: c.CAPEM, Version: c.Version,
		UpdatedAt: service.Stamp(c.UpdatedAt)}
	if hashes, err := pki.KeyHashes(c.CAPEM); err == nil { // it was valid when it was stored
		out.CaHashes = hashes
	}
	if plain, err := s.Config.Secrets.OpenCluster(c.Ref, c.Sealed); err == nil {
		out.CredentialsKind = plain.Kind()
	}
	return out
}
