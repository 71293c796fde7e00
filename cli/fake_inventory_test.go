package cli

import (
	"context"
	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"google.golang.org/grpc/codes"
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

// ListClusters returns one cluster a page.
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

var someRegions = []*pb.MAASRegion{
	{RegionRef: "default", Endpoint: "http://maas.example:5240/MAAS", ConsumerKey: "consumer", Version: 3,
		UpdatedAt: at(0)},
	// Its key was sealed with another key of the controller's.
	{RegionRef: "lab", Endpoint: "https://lab.example/MAAS\x1b[2J", Version: 1, UpdatedAt: at(0), RetainMachines: true},
}

func (f *fakeServer) SetMAASRegion(_ context.Context, r *pb.SetMAASRegionRequest) (*pb.MAASRegion, error) {
	if r.GetApiKey() != "consumer:token:secret" {
		return nil, refuse(codes.InvalidArgument, pb.Reason_INVALID_FIELD, "api_key: consumer:token:secret, as MAAS shows it",
			nil)
	}
	return &pb.MAASRegion{
		RegionRef: r.GetRegionRef(), Endpoint: r.GetEndpoint(), ConsumerKey: "consumer", Version: 1, UpdatedAt: at(0),
		UserData: r.GetUserData(),
		CaPem:    r.GetCaPem(), RetainMachines: r.GetRetainMachines(),
	}, nil
}

// ListMAASRegions returns one region a page.
func (f *fakeServer) ListMAASRegions(
	_ context.Context, r *pb.ListMAASRegionsRequest,
) (*pb.ListMAASRegionsResponse, error) {
	if r.GetPageToken() == "" {
		return &pb.ListMAASRegionsResponse{Regions: someRegions[:1], NextPageToken: "2"}, nil
	}
	return &pb.ListMAASRegionsResponse{Regions: someRegions[1:]}, nil
}

func (f *fakeServer) DeleteMAASRegion(_ context.Context, r *pb.DeleteMAASRegionRequest) (*pb.MAASRegion, error) {
	switch r.GetRegionRef() {
	case "default":
		return nil, refuse(codes.FailedPrecondition, pb.Reason_CREDENTIALS_IN_USE,
			"MAAS region default drives machine machine-1", map[string]string{"machine_id": "machine-1"})
	case "lab":
		return someRegions[1], nil
	}
	return nil, refuse(codes.NotFound, pb.Reason_CREDENTIALS_NOT_FOUND, "there is no MAAS region \""+r.GetRegionRef()+"\"",
		nil)
}
