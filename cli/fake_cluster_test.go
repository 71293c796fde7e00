package cli

import (
	"context"

	"google.golang.org/grpc/codes"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

var someClusters = []*pb.Cluster{
	{
		ClusterRef: "prod-1", Server: "https://10.0.0.1:6443", CaPem: []byte("ca"), CaHashes: []string{"sha256:f00d"},
		CredentialsKind: "token",
		Version:         2, UpdatedAt: at(0),
	},
	{ClusterRef: "old", Server: "https://10.0.0.2:6443", Version: 1, UpdatedAt: at(0)},
}

func (f *fakeServer) findCluster(ref string) (*pb.Cluster, error) {
	for _, c := range someClusters {
		if c.GetClusterRef() == ref {
			return c, nil
		}
	}
	return nil, refuse(codes.NotFound, pb.Reason_CLUSTER_NOT_FOUND, "there is no cluster \""+ref+"\"", nil)
}

func (f *fakeServer) SetCluster(_ context.Context, r *pb.SetClusterRequest) (*pb.Cluster, error) {
	return &pb.Cluster{ClusterRef: r.GetClusterRef(), Server: r.GetServer(), CredentialsKind: "token", Version: 1,
		UpdatedAt: at(0)}, nil
}

func (f *fakeServer) GetCluster(_ context.Context, r *pb.GetClusterRequest) (*pb.Cluster, error) {
	return f.findCluster(r.GetClusterRef())
}

// ListClusters gives one cluster a page.
func (f *fakeServer) ListClusters(_ context.Context, r *pb.ListClustersRequest) (*pb.ListClustersResponse, error) {
	if r.GetPageToken() == "" {
		return &pb.ListClustersResponse{Clusters: someClusters[:1], NextPageToken: "2"}, nil
	}
	return &pb.ListClustersResponse{Clusters: someClusters[1:]}, nil
}

func (f *fakeServer) DeleteCluster(_ context.Context, r *pb.DeleteClusterRequest) (*pb.Cluster, error) {
	if r.GetClusterRef() == "prod-1" {
		return nil, refuse(codes.FailedPrecondition, pb.Reason_CLUSTER_IN_USE, "machine machine-1 names the cluster prod-1",
			map[string]string{"machine_id": "machine-1"})
	}
	return f.findCluster(r.GetClusterRef())
}
