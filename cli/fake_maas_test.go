package cli

import (
	"context"

	"google.golang.org/grpc/codes"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

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

// ListMAASRegions gives one region a page.
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
