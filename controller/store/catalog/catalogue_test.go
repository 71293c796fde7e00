package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/credential"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

func nothing() error { return nil }

func addImage(t testing.TB, s *store.Store, ref, kind string) *pb.Image {
	t.Helper()
	im, err := s.Catalog.AddImage(t.Context(), &pb.Image{
		ImageRef: ref, Kind: kind, Arch: "amd64", Format: "raw", Sha256File: "sum of " + ref, Sha256Raw: "sum of " + ref,
		SizeBytes:     1 << 20,
		FileSizeBytes: 1 << 20, MinimumDiskBytes: 1 << 21,
	}, nothing, "tester", storetest.Now())
	if err != nil {
		t.Fatal(err)
	}
	return im
}

func revision(t testing.TB, s *store.Store, site string) int64 {
	t.Helper()
	got, err := s.Sites.GetSite(t.Context(), site)
	if err != nil {
		t.Fatal(err)
	}
	return got.GetRevision()
}

func TestAnImageWhoseFileCannotBePlacedIsNone(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	broken := errors.New("no room")
	_, err := s.Catalog.AddImage(t.Context(), &pb.Image{ImageRef: "x", Kind: "os", Sha256File: "s"},
		func() error { return broken }, "tester", storetest.Now())
	if !errors.Is(err, broken) {
		t.Fatalf("%v", err)
	}
	_, err = s.Catalog.GetImage(t.Context(), "x")
	storetest.WantReason(t, err, "IMAGE_NOT_FOUND")
}

func TestAnImageThatIsNeededStays(t *testing.T) {
	t.Parallel()
	s := storetest.With(t, store.Config{DefaultImage: "of-the-server"})
	for _, ref := range []string{"of-an-operation", "of-a-machine", "of-the-server", "free"} {
		addImage(t, s, ref, "os")
	}
	storetest.Register(t, s, "m-1")
	storetest.Simulated(t, s, "m-1")
	storetest.Maintenance(t, s, "m-1")
	op := storetest.Start(t, s, operationstore.StartRequest{
		MachineID: "m-1", RequestID: "r", Type: fleet.Reimage, Params: map[string]string{"image_ref": "of-an-operation"},
		Inputs: kind.Inputs{ImageRef: "of-an-operation"},
	})
	if _, err := s.Machines.Register(t.Context(),
		&pb.Machine{MachineId: "m-2", Spec: &pb.MachineSpec{DefaultImageRef: "of-a-machine"}}, "tester",
		storetest.Now()); err != nil {
		t.Fatal(err)
	}
	remove := func(ref string) error {
		_, err := s.Catalog.RemoveImage(t.Context(), ref, "tester", storetest.Now())
		return err
	}
	if e := storetest.WantReason(t, remove("of-an-operation"),
		"IMAGE_IN_USE"); e.Metadata["operation_id"] != op.GetOperationId() {
		t.Errorf("metadata %v", e.Metadata)
	}
	if e := storetest.WantReason(t, remove("of-a-machine"), "IMAGE_IN_USE"); e.Metadata["machine_id"] != "m-2" {
		t.Errorf("metadata %v", e.Metadata)
	}
	storetest.WantReason(t, remove("of-the-server"), "IMAGE_IN_USE")
	if err := remove("free"); err != nil {
		t.Error(err)
	}
	if _, err := s.Operations.Cancel(t.Context(), op.GetOperationId(), "tester", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Nodes.Delete(t.Context(), "m-2", "tester", false, storetest.Now()); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"of-an-operation", "of-a-machine"} {
		if err := remove(ref); err != nil {
			t.Errorf("%s when nothing needs it: %v", ref, err)
		}
	}
}

// TestInstallersConcernEverySite: what machines boot is part of every site's document.
func TestInstallersConcernEverySite(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	before := revision(t, s, "default")
	addImage(t, s, "system", "os")
	if got := revision(t, s, "default"); got != before {
		t.Errorf("an operating system has moved the revision to %d", got)
	}
	addImage(t, s, "old", "installer-kernel")
	addImage(t, s, "new", "installer-kernel")
	addImage(t, s, "other", "installer-initrd")
	if got := revision(t, s, "default"); got != before+3 {
		t.Errorf("revision %d after three, from %d", got, before)
	}
	storetest.Register(t, s, "m-1")
	err := storetest.ExecSQL(
		t,
		s,
		`INSERT INTO boot_assignments (machine_id, site, mode, token, revision, updated_at) VALUES ('m-1', 'default', 'rescue', 't', 1, now())`,
	)
	if err != nil {
		t.Fatal(err)
	}
	for ref, reason := range map[string]string{"new": "IMAGE_IN_USE", "other": "IMAGE_IN_USE", "old": ""} {
		_, err := s.Catalog.RemoveImage(t.Context(), ref, "tester", storetest.Now())
		if reason != "" {
			storetest.WantReason(t, err, reason)
		} else if err != nil {
			t.Errorf("%s: %v", ref, err)
		}
	}
	if got := revision(t, s, "default"); got != before+4 {
		t.Errorf("revision %d after one has gone, from %d", got, before)
	}
}

func TestSegmentsOfASite(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	segments := []*pb.Segment{
		{Name: "a", Interface: "eth0", Address: "10.0.0.1/24", PoolStart: "10.0.0.10", PoolEnd: "10.0.0.20",
			Dns: []string{"10.0.0.1"}},
		{Name: "b", Interface: "eth1", Address: "10.0.1.1/24", Mode: "proxy"},
	}
	set := func(g []*pb.Segment) *pb.Site {
		t.Helper()
		site, err := s.Sites.SetSite(t.Context(), "lab", g, "", "tester", storetest.Now())
		if err != nil {
			t.Fatal(err)
		}
		return site
	}
	first := set(segments)
	if len(first.GetSegments()) != 2 || !proto.Equal(first.GetSegments()[0], segments[0]) || first.GetAgentId() != "" ||
		first.GetAppliedAt() != nil {
		t.Fatalf("%v", first)
	}
	if again := set(segments); again.GetRevision() != first.GetRevision() {
		t.Errorf("the same again made revision %d of %d", again.GetRevision(), first.GetRevision())
	}
	if less := set(segments[:1]); less.GetRevision() != first.GetRevision()+1 || len(less.GetSegments()) != 1 {
		t.Errorf("%v", less)
	}
	err := storetest.ExecSQL(t, s,
		`UPDATE sites SET applied_revision = 2, applied_at = now(), agent_id = 'a-1', observations =
		'[{"segment": "a", "state": "up", "pool_size": 11, "poolUsed": 3, "foreignDhcpServer": "10.0.0.9", "later": 1}, {"segment": "gone", "state": "down"}]' WHERE site = 'lab'`)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := s.Sites.GetSite(t.Context(), "lab")
	if err != nil {
		t.Fatal(err)
	}
	if g := seen.GetSegments()[0]; g.GetState() != "up" || g.GetPoolSize() != 11 || g.GetPoolUsed() != 3 ||
		g.GetForeignDhcpServer() != "10.0.0.9" ||
		seen.GetAgentId() != "a-1" || seen.GetAppliedRevision() != 2 || seen.GetAppliedAt() == nil {
		t.Errorf("%v", seen)
	}
	all, err := s.Sites.ListSites(t.Context(), "", 100)
	if err != nil || len(all) != 2 || all[0].GetSite() != "default" || all[1].GetSite() != "lab" {
		t.Errorf("%v, %v", all, err)
	}
	_, err = s.Sites.GetSite(t.Context(), "nowhere")
	storetest.WantReason(t, err, "SITE_NOT_FOUND")
	if n := storetest.Count(t, s, `SELECT count(*) FROM audit_log WHERE verb = 'SET_SITE'`); n != 2 {
		t.Errorf("%d audit rows for two changes", n)
	}
}

func TestLeasesAndDiscoveredMachines(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	storetest.Register(t, s, "m-1", "52:54:00:00:00:02")
	for i := range 5 {
		mac := fmt.Sprintf("52:54:00:00:00:%02d", i)
		err := storetest.ExecSQL(
			t,
			s,
			`INSERT INTO site_leases (site, segment, mac, address, expires_at, hostname) VALUES ('default', $1, $2::text::macaddr, $3::text::inet, now(), 'h')`,
			[]string{"a", "b"}[i/3],
			mac,
			fmt.Sprintf("10.0.0.%d", 10+i),
		)
		if err == nil {
			err = storetest.ExecSQL(
				t,
				s,
				`INSERT INTO discovered_machines (site, mac, segment, first_seen_at, last_seen_at) VALUES ('default', $1::text::macaddr, 'a', now(), now())`,
				mac,
			)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	f := sitestore.LeaseFilter{Site: "default", Limit: 2}
	for {
		page, err := s.Sites.ListSiteLeases(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, l := range page {
			got = append(got, l.GetSegment()+l.GetAddress()+l.GetMachineId())
			f.AfterSegment, f.AfterMAC = l.GetSegment(), l.GetMacAddress()
		}
	}
	if want := []string{"a10.0.0.10", "a10.0.0.11", "a10.0.0.12m-1", "b10.0.0.13", "b10.0.0.14"}; !slices.Equal(got,
		want) {
		t.Errorf("leases %v, want %v", got, want)
	}
	for _, site := range []string{"", "default"} {
		found, err := s.Sites.ListDiscovered(t.Context(), sitestore.DiscoveredFilter{Site: site, Limit: 100})
		if err != nil || len(found) != 4 ||
			slices.ContainsFunc(found, func(m *pb.DiscoveredMachine) bool { return m.GetMacAddress() == "52:54:00:00:00:02" }) {
			t.Errorf("site %q: %v, %v", site, found, err)
		}
	}
	_, err := s.Sites.ListSiteLeases(t.Context(), sitestore.LeaseFilter{Site: "nowhere", Limit: 1})
	storetest.WantReason(t, err, "SITE_NOT_FOUND")
	_, err = s.Sites.ListDiscovered(t.Context(), sitestore.DiscoveredFilter{Site: "nowhere", Limit: 100})
	storetest.WantReason(t, err, "SITE_NOT_FOUND")
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	spec := &pb.MachineSpec{Site: "lab", BmcCredentialsRef: "rack"}
	if _, err := s.Machines.Register(t.Context(), &pb.Machine{MachineId: "m-1", Spec: spec}, "tester",
		storetest.Now()); err != nil {
		t.Fatal(err)
	}
	set := func(ref, sealed string) credentialstore.SealedCredentials {
		t.Helper()
		c, err := s.Credentials.SetCredentials(t.Context(), credential.Change{Ref: ref,
			Sealed: []byte(sealed), Allowed: []string{"10.0.0.0/24"}}, "tester", storetest.Now())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	lab, other := revision(t, s, "lab"), revision(t, s, "default")
	if c := set("rack", "one"); c.Version != 1 {
		t.Errorf("%+v", c)
	}
	if c := set("rack", "two"); c.Version != 2 || string(c.Sealed) != "two" {
		t.Errorf("%+v", c)
	}
	set("unused", "three")
	if got := revision(t, s, "lab"); got != lab+2 {
		t.Errorf("revision of the site that is concerned: %d, was %d", got, lab)
	}
	if got := revision(t, s, "default"); got != other {
		t.Errorf("revision of a site that is not concerned: %d, was %d", got, other)
	}
	_, err := s.Credentials.DeleteCredentials(t.Context(), "rack", "tester", storetest.Now())
	storetest.WantReason(t, err, "CREDENTIALS_IN_USE")
	if _, err := s.Credentials.DeleteCredentials(t.Context(), "unused", "tester", storetest.Now()); err != nil {
		t.Error(err)
	}
	_, err = s.Credentials.DeleteCredentials(t.Context(), "unused", "tester", storetest.Now())
	storetest.WantReason(t, err, "CREDENTIALS_NOT_FOUND")
	all, err := s.Credentials.ListCredentials(t.Context(), "", 100)
	if err != nil || len(all) != 1 || all[0].Ref != "rack" {
		t.Errorf("%v, %v", all, err)
	}
}

// TestWhoGetsCredentials: only the site agent of a machine that names them.
func TestWhoGetsCredentials(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	for id, spec := range map[string]*pb.MachineSpec{
		"m-1": {Site: "lab", BmcEndpoint: "redfish://10.0.0.7", BmcCredentialsRef: "rack"},
		"m-2": {Site: "lab", BmcCredentialsRef: "gone"}, "m-3": {Site: "lab"},
		"m-4": {Site: "elsewhere", BmcCredentialsRef: "rack"}, "m-5": {Site: "lab", BmcCredentialsRef: "rack"},
		"m-6": {Site: "lab", BmcEndpoint: "10.0.1.7", BmcCredentialsRef: "rack"},
		"m-7": {Site: "lab", BmcEndpoint: "redfish+http://10.0.0.7/redfish/v1/Systems/2", BmcCredentialsRef: "rack"},
	} {
		if _, err := s.Machines.Register(t.Context(), &pb.Machine{MachineId: id, Spec: spec}, "tester",
			storetest.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Nodes.Delete(t.Context(), "m-5", "tester", false, storetest.Now()); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"rack", "second"} {
		if _, err := s.Credentials.SetCredentials(t.Context(), credential.Change{Ref: ref,
			Sealed: []byte("sealed"), Allowed: []string{"10.0.0.0/24"}}, "tester", storetest.Now()); err != nil {
			t.Fatal(err)
		}
	}
	site := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-site", Role: "site", Site: "lab"})
	host := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-host", MachineID: "m-1"})
	for name, c := range map[string]struct{ agent, machine, ref, reason string }{
		"host":             {host.ID, "m-1", "rack", "SCOPE_TOO_SMALL"},
		"nobody":           {"a-no", "m-1", "rack", "SCOPE_TOO_SMALL"},
		"no machine":       {site.ID, "m-no", "rack", "MACHINE_NOT_FOUND"},
		"another site":     {site.ID, "m-4", "rack", "MACHINE_NOT_FOUND"},
		"deleted":          {site.ID, "m-5", "rack", "MACHINE_NOT_FOUND"},
		"other name":       {site.ID, "m-1", "second", "CREDENTIALS_NOT_FOUND"},
		"names none":       {site.ID, "m-3", "", "CREDENTIALS_NOT_FOUND"},
		"another endpoint": {site.ID, "m-6", "rack", "BMC_ENDPOINT_NOT_ALLOWED"},
		"without TLS":      {site.ID, "m-7", "rack", "BMC_PLAIN_HTTP_NOT_ALLOWED"},
		"names lost ones":  {site.ID, "m-2", "gone", "CREDENTIALS_NOT_FOUND"},
	} {
		_, err := s.Credentials.CredentialsFor(t.Context(), c.agent, c.machine, c.ref, storetest.Now())
		t.Run(name, func(t *testing.T) { storetest.WantReason(t, err, c.reason) })
	}
	if n := storetest.Count(t, s, `SELECT count(*) FROM audit_log WHERE verb = 'GET_BMC_CREDENTIALS'`); n != 0 {
		t.Errorf("%d audit rows for refused calls", n)
	}
	c, err := s.Credentials.CredentialsFor(t.Context(), site.ID, "m-1", "rack", storetest.Now())
	if err != nil || string(c.Sealed) != "sealed" || c.Version != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	n := storetest.Count(t, s,
		`SELECT count(*) FROM audit_log WHERE verb = 'GET_BMC_CREDENTIALS' AND actor = $1 AND target_id = 'm-1'`, site.ID)
	if n != 1 {
		t.Errorf("%d audit rows for one that was given out", n)
	}
	if role, err := s.Credentials.RoleOfAgent(t.Context(), host.ID); err != nil || role != "host" {
		t.Errorf("%q, %v", role, err)
	}
	if role, err := s.Credentials.RoleOfAgent(context.Background(), "a-no"); err != nil || role != "" {
		t.Errorf("%q, %v", role, err)
	}
}

// TestRemoveAndStartAtOnce: one of the two is refused, in either order; no operation is left without its image.
func TestRemoveAndStartAtOnce(t *testing.T) {
	t.Parallel()
	r := storetest.NewMetalRig(t)
	s := r.Store
	r.OfMetal(`{"name":"sda","serial":"QM1","size_bytes":1073741824}`, "kexec")
	for round := range 15 {
		ref := fmt.Sprint("image-", round)
		addImage(t, s, ref, "os")
		var op *pb.Operation
		errs := storetest.Together(t, 2, func(ctx context.Context, i int) (err error) {
			if i == 0 {
				_, err = s.Catalog.RemoveImage(ctx, ref, "tester", storetest.Now())
				return err
			}
			op, _, err = s.Operations.Start(ctx, operationstore.StartRequest{
				MachineID: "m-1", RequestID: ref, Type: fleet.Reimage, Inputs: kind.Inputs{ImageRef: ref}, Actor: "tester",
			}, storetest.Now())
			return err
		})
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("round %d: remove %v, start %v", round, errs[0], errs[1])
		}
		if errs[1] != nil {
			storetest.WantReason(t, errs[1], "IMAGE_NOT_FOUND")
			continue
		}
		storetest.WantReason(t, errs[0], "IMAGE_IN_USE")
		if _, err := s.Operations.Cancel(t.Context(), op.GetOperationId(), "tester", storetest.Now()); err != nil {
			t.Fatal(err)
		}
	}
}
