package agenttest

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/pki"
)

// siteSide is what a site's agent asks a controller for.
type siteSide struct {
	document    *fleetv1.SiteDocument
	syncs       []*fleetv1.SyncSiteRequest
	blobs       map[string][]byte
	fetches     []*fleetv1.FetchBlobRequest
	vouched     []*fleetv1.VouchInstallerRequest
	credentials map[string]*fleetv1.GetBMCCredentialsResponse
}

// SetDocument is what the site's agent is to serve by from now on.
func (c *Controller) SetDocument(doc *fleetv1.SiteDocument) {
	c.update(func() { c.site.document = proto.Clone(doc).(*fleetv1.SiteDocument) })
}

// AddBlob stores a file and returns its digest.
func (c *Controller) AddBlob(data []byte) string {
	sum := sha256.Sum256(data)
	c.AddBlobAs(hex.EncodeToString(sum[:]), data)
	return hex.EncodeToString(sum[:])
}

// AddBlobAs stores a file under a digest that need not be right.
func (c *Controller) AddBlobAs(digest string, data []byte) {
	c.update(func() {
		if c.site.blobs == nil {
			c.site.blobs = map[string][]byte{}
		}
		c.site.blobs[digest] = data
	})
}

// SetCredentials sets the answer of GetBMCCredentials for a reference.
func (c *Controller) SetCredentials(ref, username, password string, version int64) {
	c.update(func() {
		if c.site.credentials == nil {
			c.site.credentials = map[string]*fleetv1.GetBMCCredentialsResponse{}
		}
		c.site.credentials[ref] = &fleetv1.GetBMCCredentialsResponse{
			Username: username, Password: password, Version: version,
			AllowedEndpoints: []string{"127.0.0.0/8", "10.0.0.0/8"}, AllowPlainHttp: true,
		}
	})
}

// Syncs lists all calls of SyncSite.
func (c *Controller) Syncs() []*fleetv1.SyncSiteRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*fleetv1.SyncSiteRequest(nil), c.site.syncs...)
}

// Fetches lists all calls of FetchBlob.
func (c *Controller) Fetches() []*fleetv1.FetchBlobRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*fleetv1.FetchBlobRequest(nil), c.site.fetches...)
}

// Vouched lists all calls of VouchInstaller.
func (c *Controller) Vouched() []*fleetv1.VouchInstallerRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*fleetv1.VouchInstallerRequest(nil), c.site.vouched...)
}

// SyncSite implements the service.
func (f *fleet) SyncSite(ctx context.Context, r *fleetv1.SyncSiteRequest) (*fleetv1.SyncSiteResponse, error) {
	f.c.update(func() { f.c.site.syncs = append(f.c.site.syncs, r) })
	timer := time.NewTimer(time.Duration(r.GetHoldMs()) * time.Millisecond)
	defer timer.Stop()
	for {
		f.c.mu.Lock()
		doc, changed := f.c.site.document, f.c.changed
		f.c.mu.Unlock()
		if doc != nil && doc.GetRevision() != r.GetAppliedRevision() {
			return &fleetv1.SyncSiteResponse{Document: doc}, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
			return &fleetv1.SyncSiteResponse{}, nil
		case <-changed:
		}
	}
}

// GetBMCCredentials implements the service.
func (f *fleet) GetBMCCredentials(
	_ context.Context, r *fleetv1.GetBMCCredentialsRequest,
) (*fleetv1.GetBMCCredentialsResponse, error) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	found := f.c.site.credentials[r.GetCredentialsRef()]
	if found == nil {
		return nil, status.Error(codes.NotFound, "no such credentials")
	}
	return found, nil
}

// VouchInstaller implements the service: it certifies every key.
func (f *fleet) VouchInstaller(
	_ context.Context, r *fleetv1.VouchInstallerRequest,
) (*fleetv1.VouchInstallerResponse, error) {
	f.c.update(func() { f.c.site.vouched = append(f.c.site.vouched, r) })
	if h := f.c.hook().Vouch; h != nil {
		if err := h(r); err != nil {
			return nil, err
		}
	}
	csr, err := pki.ParseCSR(r.GetCsr())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	id := ids.New(ids.Agent)
	return &fleetv1.VouchInstallerResponse{
		AgentId: id, MachineId: r.GetMachineId(), OperationId: r.GetOperationId(),
		CertificateChainPem: f.c.ca.agent(f.c.t, id, csr.PublicKey, time.Now().Add(-time.Minute), time.Now().Add(time.Hour)),
		TrustBundlePem:      pki.EncodeCerts(f.c.ca.root), FleetAddresses: []string{f.c.FleetAddr},
		GrantKeys: [][]byte{f.c.grantKey.Public().(ed25519.PublicKey)},
	}, nil
}

// FetchBlob implements the service.
func (f *fleet) FetchBlob(
	r *fleetv1.FetchBlobRequest, stream grpc.ServerStreamingServer[fleetv1.FetchBlobResponse],
) error {
	var data []byte
	f.c.update(func() {
		f.c.site.fetches = append(f.c.site.fetches, r)
		data = f.c.site.blobs[r.GetSha256()]
	})
	if data == nil {
		return status.Error(codes.NotFound, "no such blob")
	}
	if r.GetOffset() > int64(len(data)) {
		return status.Error(codes.OutOfRange, "behind the end")
	}
	if err := stream.Send(&fleetv1.FetchBlobResponse{Size: int64(len(data))}); err != nil {
		return err
	}
	const piece = 64 << 10
	for rest := data[r.GetOffset():]; len(rest) > 0; rest = rest[min(piece, len(rest)):] {
		if err := stream.Send(&fleetv1.FetchBlobResponse{Data: rest[:min(piece, len(rest))]}); err != nil {
			return err
		}
	}
	return nil
}
