package admin_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failure"
)

func segmentOf(name string, n int) *pb.Segment {
	return &pb.Segment{
		Name: name, Interface: "eth" + fmt.Sprint(n), Address: fmt.Sprintf("10.0.%d.1/24", n),
		PoolStart: fmt.Sprintf("10.0.%d.10", n), PoolEnd: fmt.Sprintf("10.0.%d.20", n),
	}
}

func TestSites(t *testing.T) {
	r := publictest.NewRig(t)
	set := func(segments ...*pb.Segment) (*pb.Site, error) {
		return r.Admin.SetSite(t.Context(), &pb.SetSiteRequest{Site: "lab", Segments: segments})
	}
	first, err := set(segmentOf("a", 1), segmentOf("b", 2))
	if err != nil || first.GetSegments()[0].GetMode() != "dhcp" || first.GetSegments()[1].GetLeaseSeconds() != 3600 {
		t.Fatalf("%v, %v", first, err)
	}
	filled, err := set(first.GetSegments()...)
	if err != nil || filled.GetRevision() != first.GetRevision() {
		t.Errorf("what was answered, set again: %v, %v", filled, err)
	}
	_, err = set(segmentOf("a", 1), segmentOf("a", 1))
	publictest.Wants(t, err, invalid, "INVALID_FIELD", "segments[1].name")
	relayed := segmentOf("b", 2)
	relayed.Relays = []string{"10.88.0.1"}
	_, err = set(segmentOf("a", 1), relayed)
	publictest.Wants(t, err, failure.KindUnimplemented, "DHCP_RELAYS_NOT_WIRED", "segments[1].relays")
	_, err = r.Admin.SetSite(t.Context(), &pb.SetSiteRequest{})
	publictest.Wants(t, err, invalid, "INVALID_FIELD", "site")
	_, err = r.Admin.SetSite(t.Context(), &pb.SetSiteRequest{Site: "No"})
	publictest.Wants(t, err, invalid, "INVALID_FIELD", "site")
	got, err := r.Admin.GetSite(t.Context(), &pb.GetSiteRequest{Site: "lab"})
	if err != nil || got.GetRevision() != first.GetRevision() || len(got.GetSegments()) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	all, err := r.Admin.ListSites(t.Context(), &pb.ListSitesRequest{})
	if err != nil || len(all.GetSites()) != 2 {
		t.Errorf("%v, %v", all, err)
	}
	_, err = r.Admin.GetSite(t.Context(), &pb.GetSiteRequest{Site: "nowhere"})
	publictest.Wants(t, err, notFound, "SITE_NOT_FOUND", "site")
}

func TestLeasesArePaged(t *testing.T) {
	r := publictest.NewRig(t)
	var leases []*fleetv1.SiteLease
	for i := range 5 {
		leases = append(leases, &fleetv1.SiteLease{
			Segment: "a", MacAddress: fmt.Sprintf("52:54:00:00:00:%02d", i), Address: fmt.Sprintf("10.0.0.%d", i+1),
			ExpiresAt: timestamppb.Now(),
		})
	}
	if _, err := r.Store.Sites.RecordSite(t.Context(), sitestore.SiteReport{Site: "default", Leases: leases},
		time.Now()); err != nil {
		t.Fatal(err)
	}
	var got []string
	token := ""
	for {
		p, err := r.Admin.ListSiteLeases(t.Context(), &pb.ListSiteLeasesRequest{Site: "default", PageSize: 2,
			PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range p.GetLeases() {
			got = append(got, l.GetAddress())
		}
		if token = p.GetNextPageToken(); token == "" {
			break
		}
	}
	if want := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"}; !slices.Equal(got, want) {
		t.Errorf("walked %v", got)
	}
	_, err := r.Admin.ListSiteLeases(t.Context(), &pb.ListSiteLeasesRequest{Site: "default", PageToken: "x"})
	publictest.Wants(t, err, invalid, "INVALID_PAGE_TOKEN", "page_token")
	_, err = r.Admin.ListSiteLeases(t.Context(), &pb.ListSiteLeasesRequest{Site: "nowhere"})
	publictest.Wants(t, err, notFound, "SITE_NOT_FOUND", "site")
	_, err = r.Admin.ListDiscovered(t.Context(), &pb.ListDiscoveredRequest{Site: "nowhere"})
	publictest.Wants(t, err, notFound, "SITE_NOT_FOUND", "site")
}

// TestPasswordsStayInside: whatever is called, no answer, no audit row and no table has one.
func TestPasswordsStayInside(t *testing.T) {
	r := publictest.NewRig(t)
	set := func(password string) (*pb.BMCCredentials, error) {
		return r.Admin.SetBMCCredentials(t.Context(), &pb.SetBMCCredentialsRequest{
			CredentialsRef: "rack", Username: "administrator", Password: password, AllowedEndpoints: []string{"10.0.0.0/24"},
		})
	}
	var shown []string
	for version, password := range []string{"hunter2-one", "hunter2-two", "hunter2-two"} {
		c, err := set(password)
		if err != nil || c.GetVersion() != int64(version+1) || c.GetUsername() != "administrator" {
			t.Errorf("%v, %v", c, err)
		}
		shown = append(shown, c.String())
	}
	_, err := set("hunter2\n")
	publictest.Wants(t, err, invalid, "INVALID_FIELD", "password")
	all, err := r.Admin.ListBMCCredentials(t.Context(), &pb.ListBMCCredentialsRequest{})
	if err != nil || len(all.GetCredentials()) != 1 || all.GetCredentials()[0].GetUsername() != "administrator" {
		t.Errorf("%v, %v", all, err)
	}
	audit, err := r.Admin.ListAuditLog(t.Context(), &pb.ListAuditLogRequest{TargetId: "rack"})
	if err != nil || len(audit.GetEntries()) != 3 {
		t.Errorf("%v, %v", audit, err)
	}
	for _, e := range audit.GetEntries() {
		shown = append(shown, e.String(), string(e.GetEventData()))
	}
	stored := storetest.Dump(t, r.Store, "bmc_credentials", "audit_log", "sites")
	shown = append(shown, all.String(), stored)
	for _, s := range shown {
		if strings.Contains(s, "hunter2") {
			t.Errorf("the password is in %.300s", s)
		}
	}
	if strings.Contains(stored, "administrator") || !strings.Contains(stored, "SET_BMC_CREDENTIALS") {
		t.Error("the user name is in the database, unsealed")
	}
	gone, err := r.Admin.DeleteBMCCredentials(t.Context(), &pb.DeleteBMCCredentialsRequest{CredentialsRef: "rack"})
	if err != nil || gone.GetUsername() != "administrator" {
		t.Errorf("%v, %v", gone, err)
	}
	_, err = r.Admin.DeleteBMCCredentials(t.Context(), &pb.DeleteBMCCredentialsRequest{CredentialsRef: "rack"})
	publictest.Wants(t, err, notFound, "CREDENTIALS_NOT_FOUND", "credentials_ref")
}
