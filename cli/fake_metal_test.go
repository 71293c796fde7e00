package cli

import (
	"context"
	"errors"
	"io"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

var (
	someImage = &pb.Image{
		ImageRef: "debian-12", Kind: "os", Arch: "amd64", Format: "raw.zst", SizeBytes: 1 << 30, FileSizeBytes: 100 << 20,
		MinimumDiskBytes: 1<<30 + 64<<20, Firmware: []string{"uefi"}, Sha256File: "f00d", Sha256Raw: "beef",
		Url: "http://h/x", CreatedAt: at(0),
	}
	someSite = &pb.Site{
		Site: "berlin", Revision: 3, AppliedRevision: 2, AppliedAt: at(0), AgentId: "a-1", Segments: []*pb.Segment{{
			Name: "prov", Interface: "eth1", Address: "10.0.0.1/24", PoolStart: "10.0.0.10", PoolEnd: "10.0.0.20", Mode: "dhcp",
			Discovery:    "report",
			LeaseSeconds: 3600, HttpPort: 8080, State: "up", PoolSize: 11, PoolUsed: 4, ForeignDhcpServer: "10.0.0.9",
		}},
	}
	someCredentials = &pb.BMCCredentials{
		CredentialsRef: "rack-42", Username: "admin", Version: 2, UpdatedAt: at(0),
		AllowedEndpoints: []string{"10.0.0.0/24"}, AllowPlainHttp: true, AllowUnverifiedTls: true, Adopted: true,
		RefusedMachines: []string{"m-8", "m-9"},
	}
)

func (f *fakeServer) AddImage(_ context.Context, r *pb.AddImageRequest) (*pb.Image, error) {
	f.sent = append(f.sent, r)
	return someImage, nil
}

// UploadImage keeps the description and all data in one message, unless it knows the digest already.
func (f *fakeServer) UploadImage(s pb.AdminService_UploadImageServer) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	f.sent = append(f.sent, first.GetImage())
	if f.knownDigest != "" && first.GetImage().GetSha256Source() == f.knownDigest {
		return s.SendAndClose(someImage)
	}
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return s.SendAndClose(someImage)
		}
		if err != nil {
			return err
		}
		f.uploaded = append(f.uploaded, m.GetData()...)
	}
}

func (f *fakeServer) GetImage(context.Context, *pb.GetImageRequest) (*pb.Image, error) {
	return someImage, nil
}

func (f *fakeServer) ListImages(_ context.Context, r *pb.ListImagesRequest) (*pb.ListImagesResponse, error) {
	f.sent = append(f.sent, r)
	return &pb.ListImagesResponse{Images: []*pb.Image{someImage}}, nil
}

func (f *fakeServer) RemoveImage(_ context.Context, r *pb.RemoveImageRequest) (*pb.Image, error) {
	f.sent = append(f.sent, r)
	return someImage, nil
}

func (f *fakeServer) SetSite(_ context.Context, r *pb.SetSiteRequest) (*pb.Site, error) {
	f.sent = append(f.sent, r)
	return someSite, nil
}

func (f *fakeServer) GetSite(context.Context, *pb.GetSiteRequest) (*pb.Site, error) {
	return someSite, nil
}

func (f *fakeServer) ListSites(context.Context, *pb.ListSitesRequest) (*pb.ListSitesResponse, error) {
	return &pb.ListSitesResponse{Sites: []*pb.Site{someSite}}, nil
}

func (f *fakeServer) ListSiteLeases(context.Context, *pb.ListSiteLeasesRequest) (*pb.ListSiteLeasesResponse, error) {
	return &pb.ListSiteLeasesResponse{Leases: []*pb.SiteLease{
		{Site: "berlin", Segment: "prov", MacAddress: "52:54:00:00:00:01", Address: "10.0.0.10", MachineId: "m-1",
			ExpiresAt: at(0)},
	}}, nil
}

func (f *fakeServer) ListDiscovered(
	_ context.Context, r *pb.ListDiscoveredRequest,
) (*pb.ListDiscoveredResponse, error) {
	f.sent = append(f.sent, r)
	return &pb.ListDiscoveredResponse{Machines: []*pb.DiscoveredMachine{
		{Site: "berlin", Segment: "prov", MacAddress: "52:54:00:00:00:02", Arch: "uefi-x64", Vendor: "ev\x1b[2Jil",
			FirstSeenAt: at(0), LastSeenAt: at(1)},
	}}, nil
}

func (f *fakeServer) SetBMCCredentials(_ context.Context, r *pb.SetBMCCredentialsRequest) (*pb.BMCCredentials, error) {
	f.sent = append(f.sent, r)
	return someCredentials, nil
}

func (f *fakeServer) ListBMCCredentials(
	context.Context, *pb.ListBMCCredentialsRequest,
) (*pb.ListBMCCredentialsResponse, error) {
	return &pb.ListBMCCredentialsResponse{Credentials: []*pb.BMCCredentials{someCredentials, {CredentialsRef: "old"}}}, nil
}

func (f *fakeServer) DeleteBMCCredentials(
	_ context.Context, r *pb.DeleteBMCCredentialsRequest,
) (*pb.BMCCredentials, error) {
	f.sent = append(f.sent, r)
	return someCredentials, nil
}

func (f *fakeServer) DiscoverBMCs(
	_ context.Context, r *pb.DiscoverBMCsRequest,
) (*pb.DiscoverBMCsResponse, error) {
	f.sent = append(f.sent, r)
	return &pb.DiscoverBMCsResponse{Addresses: 254, Skipped: 7, Problem: "it stopped", Bmcs: []*pb.DiscoveredBMC{
		{Endpoint: "redfish://10.42.1.1", Protocol: "redfish", Vendor: "Dell Inc.", Model: "PowerEdge R650",
			SerialNumber: "SN/1 A", MacAddresses: []string{"52:54:00:aa:00:01", "52:54:00:aa:00:02"}},
		{Endpoint: "ipmi://10.42.1.2", Protocol: "ipmi", Vendor: "Quanta"},
		{Endpoint: "redfish://10.42.1.3", Protocol: "redfish", Vendor: "ev\x1b[2Jil", SerialNumber: "SN-3",
			Problem: "the serial number SN-3 is what 10.42.1.4 says too"},
		{Endpoint: "redfish://10.42.1.5", Protocol: "redfish", SerialNumber: "SN-5", MachineId: "machine-1"},
		{Endpoint: "10.42.1.6", Problem: "something listens, and gives no answer of Redfish within 10s"},
	}}, nil
}
