package catalog_test

import (
	"bytes"
	"strings"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/secret"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

const maasURL, maasKey = "http://maas.example:5240/MAAS", "consumer1:token1:secret1"

func region(r *rig, ref, key string) *pb.MAASRegion {
	r.T.Helper()
	m, err := r.MAAS.SetMAASRegion(r.T.Context(), &pb.SetMAASRegionRequest{RegionRef: ref, Endpoint: maasURL + "/",
		ApiKey: key})
	if err != nil {
		r.T.Fatalf("set region: %v", err)
	}
	return m
}

// TestMAASKeysStayInside: no answer, no audit row and no table has one; a region that is replaced gets another version.
func TestMAASKeysStayInside(t *testing.T) {
	r := publictest.NewRig(t)
	var shown []string
	for version := range 2 {
		m := region(r, "berlin", maasKey)
		if m.GetVersion() != int64(version+1) || m.GetEndpoint() != maasURL || m.GetConsumerKey() != "consumer1" ||
			m.GetUpdatedAt() == nil {
			t.Errorf("stored %v", m)
		}
		shown = append(shown, m.String())
	}
	region(r, "default", maasKey)
	region(r, "munich", maasKey)
	seen := ""
	publictest.Walk(t, func(token string) (string, error) {
		got, err := r.MAAS.ListMAASRegions(t.Context(), &pb.ListMAASRegionsRequest{PageSize: 2, PageToken: token})
		for _, m := range got.GetRegions() {
			seen += m.GetRegionRef() + " "
			shown = append(shown, m.String())
		}
		return got.GetNextPageToken(), err
	})
	if seen != "berlin default munich " {
		t.Errorf("listed %s", seen)
	}
	for _, s := range append(shown, storetest.Dump(t, r.Store, "maas_regions", "audit_log")) {
		if strings.Contains(s, "secret1") || strings.Contains(s, "token1") {
			t.Errorf("the key is in %.300s", s)
		}
	}
	r.Verbs("berlin", "SET_MAAS_REGION", "SET_MAAS_REGION")
}

// TestMAASRegionsInUse stay; others go. Where the key that sealed theirs is lost, the list says so by leaving it out.
func TestMAASRegionsInUse(t *testing.T) {
	r := publictest.NewRig(t)
	region(r, "berlin", maasKey)
	region(r, "default", maasKey)
	r.Register(&pb.Machine{MachineId: "m-1", Spec: &pb.MachineSpec{Provider: "maas", ProviderRef: "berlin"}})
	r.Register(&pb.Machine{MachineId: "m-2", Spec: &pb.MachineSpec{Provider: "maas"}})
	for _, ref := range []string{"berlin", "default"} {
		_, err := r.MAAS.DeleteMAASRegion(t.Context(), &pb.DeleteMAASRegionRequest{RegionRef: ref})
		publictest.Wants(t, err, precondition, "CREDENTIALS_IN_USE", "")
	}
	other, err := secret.New(bytes.Repeat([]byte{9}, secret.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	late := pb.NewMAASServiceClient(
		publictest.Serve(t, service.Config{Engine: r.Engine, Secrets: other}, r.Store),
	)
	got, err := late.ListMAASRegions(t.Context(), &pb.ListMAASRegionsRequest{})
	if err != nil || len(got.GetRegions()) != 2 || got.GetRegions()[0].GetConsumerKey() != "" ||
		got.GetRegions()[0].GetEndpoint() != maasURL {
		t.Errorf("%v %v", got, err)
	}
	region(r, "old", maasKey)
	gone, err := r.MAAS.DeleteMAASRegion(t.Context(), &pb.DeleteMAASRegionRequest{RegionRef: "old"})
	if err != nil || gone.GetRegionRef() != "old" {
		t.Errorf("%v %v", gone, err)
	}
	_, err = r.MAAS.DeleteMAASRegion(t.Context(), &pb.DeleteMAASRegionRequest{RegionRef: "old"})
	publictest.Wants(t, err, notFound, "CREDENTIALS_NOT_FOUND", "")
}

// TestMAASRegionsThatAreRefused: what is wrong is named, and the key is not repeated.
func TestMAASRegionsThatAreRefused(t *testing.T) {
	r := publictest.NewRig(t)
	for field, change := range map[string]func(*pb.SetMAASRegionRequest){
		"region_ref": func(q *pb.SetMAASRegionRequest) { q.RegionRef = "no name" },
		"endpoint":   func(q *pb.SetMAASRegionRequest) { q.Endpoint = maasURL + "/api/2.0" },
		"api_key":    func(q *pb.SetMAASRegionRequest) { q.ApiKey = "consumer1:hush hush" },
		"ca_pem":     func(q *pb.SetMAASRegionRequest) { q.CaPem = []byte("no certificate") },
		"user_data":  func(q *pb.SetMAASRegionRequest) { q.UserData = "#!/bin/sh" },
	} {
		q := &pb.SetMAASRegionRequest{RegionRef: "berlin", Endpoint: maasURL, ApiKey: maasKey}
		change(q)
		_, err := r.MAAS.SetMAASRegion(t.Context(), q)
		publictest.Wants(t, err, invalid, "INVALID_FIELD", field)
		if strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "secret1") {
			t.Errorf("%s: the refusal holds the key: %v", field, err)
		}
	}
	_, err := r.MAAS.DeleteMAASRegion(t.Context(), &pb.DeleteMAASRegionRequest{})
	publictest.Wants(t, err, invalid, "INVALID_FIELD", "region_ref")
	_, err = r.MAAS.ListMAASRegions(t.Context(), &pb.ListMAASRegionsRequest{PageToken: "nonsense"})
	publictest.Wants(t, err, invalid, "INVALID_PAGE_TOKEN", "page_token")
}
