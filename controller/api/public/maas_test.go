package public_test

import (
	"bytes"
	"strings"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public"
	"github.com/ingot-metal/ingot/controller/secret"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

const maasURL, maasKey = "http://maas.example:5240/MAAS", "consumer1:token1:secret1"

func (r *rig) region(ref, key string) *pb.MAASRegion {
	r.t.Helper()
	m, err := r.maas.SetMAASRegion(r.t.Context(), &pb.SetMAASRegionRequest{RegionRef: ref, Endpoint: maasURL + "/",
		ApiKey: key})
	if err != nil {
		r.t.Fatalf("set region: %v", err)
	}
	return m
}

// TestMAASKeysStayInside: no answer, no audit row and no table has one; a region that is replaced gets another version.
func TestMAASKeysStayInside(t *testing.T) {
	r := newRig(t)
	var shown []string
	for version := range 2 {
		m := r.region("berlin", maasKey)
		if m.GetVersion() != int64(version+1) || m.GetEndpoint() != maasURL || m.GetConsumerKey() != "consumer1" ||
			m.GetUpdatedAt() == nil {
			t.Errorf("stored %v", m)
		}
		shown = append(shown, m.String())
	}
	r.region("default", maasKey)
	r.region("munich", maasKey)
	seen := ""
	walk(t, func(token string) (string, error) {
		got, err := r.maas.ListMAASRegions(t.Context(), &pb.ListMAASRegionsRequest{PageSize: 2, PageToken: token})
		for _, m := range got.GetRegions() {
			seen += m.GetRegionRef() + " "
			shown = append(shown, m.String())
		}
		return got.GetNextPageToken(), err
	})
	if seen != "berlin default munich " {
		t.Errorf("listed %s", seen)
	}
	for _, s := range append(shown, storetest.Dump(t, r.store, "maas_regions", "audit_log")) {
		if strings.Contains(s, "secret1") || strings.Contains(s, "token1") {
			t.Errorf("the key is in %.300s", s)
		}
	}
	r.verbs("berlin", "SET_MAAS_REGION", "SET_MAAS_REGION")
}

// TestMAASRegionsInUse stay; others go. Where the key that sealed theirs is lost, the list says so by leaving it out.
func TestMAASRegionsInUse(t *testing.T) {
	r := newRig(t)
	r.region("berlin", maasKey)
	r.region("default", maasKey)
	r.register(&pb.Machine{MachineId: "m-1", Spec: &pb.MachineSpec{Provider: "maas", ProviderRef: "berlin"}})
	r.register(&pb.Machine{MachineId: "m-2", Spec: &pb.MachineSpec{Provider: "maas"}})
	for _, ref := range []string{"berlin", "default"} {
		_, err := r.maas.DeleteMAASRegion(t.Context(), &pb.DeleteMAASRegionRequest{RegionRef: ref})
		wants(t, err, precondition, "CREDENTIALS_IN_USE", "")
	}
	other, err := secret.New(bytes.Repeat([]byte{9}, secret.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	late := pb.NewMAASServiceClient(serve(t, public.New(public.Config{Engine: r.engine, Store: r.store, Secrets: other})))
	got, err := late.ListMAASRegions(t.Context(), &pb.ListMAASRegionsRequest{})
	if err != nil || len(got.GetRegions()) != 2 || got.GetRegions()[0].GetConsumerKey() != "" ||
		got.GetRegions()[0].GetEndpoint() != maasURL {
		t.Errorf("%v %v", got, err)
	}
	r.region("old", maasKey)
	gone, err := r.maas.DeleteMAASRegion(t.Context(), &pb.DeleteMAASRegionRequest{RegionRef: "old"})
	if err != nil || gone.GetRegionRef() != "old" {
		t.Errorf("%v %v", gone, err)
	}
	_, err = r.maas.DeleteMAASRegion(t.Context(), &pb.DeleteMAASRegionRequest{RegionRef: "old"})
	wants(t, err, notFound, "CREDENTIALS_NOT_FOUND", "")
}

// TestMAASRegionsThatAreRefused: what is wrong is named, and the key is not repeated.
func TestMAASRegionsThatAreRefused(t *testing.T) {
	r := newRig(t)
	for field, change := range map[string]func(*pb.SetMAASRegionRequest){
		"region_ref": func(q *pb.SetMAASRegionRequest) { q.RegionRef = "no name" },
		"endpoint":   func(q *pb.SetMAASRegionRequest) { q.Endpoint = maasURL + "/api/2.0" },
		"api_key":    func(q *pb.SetMAASRegionRequest) { q.ApiKey = "consumer1:hush hush" },
		"ca_pem":     func(q *pb.SetMAASRegionRequest) { q.CaPem = []byte("no certificate") },
		"user_data":  func(q *pb.SetMAASRegionRequest) { q.UserData = "#!/bin/sh" },
	} {
		q := &pb.SetMAASRegionRequest{RegionRef: "berlin", Endpoint: maasURL, ApiKey: maasKey}
		change(q)
		_, err := r.maas.SetMAASRegion(t.Context(), q)
		wants(t, err, invalid, "INVALID_FIELD", field)
		if strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "secret1") {
			t.Errorf("%s: the refusal holds the key: %v", field, err)
		}
	}
	_, err := r.maas.DeleteMAASRegion(t.Context(), &pb.DeleteMAASRegionRequest{})
	wants(t, err, invalid, "INVALID_FIELD", "region_ref")
	_, err = r.maas.ListMAASRegions(t.Context(), &pb.ListMAASRegionsRequest{PageToken: "nonsense"})
	wants(t, err, invalid, "INVALID_PAGE_TOKEN", "page_token")
}
