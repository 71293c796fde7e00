package controller

import (
	"context"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/controller/catalog/blob"
	"github.com/ingot-metal/ingot/controller/session"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/obs/metrics"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestCapacityOfSites(t *testing.T) {
	got := capacityOf([]*baremetalv1.Site{
		{Site: "lab", Segments: []*baremetalv1.Segment{{Name: "a", PoolSize: 12, PoolUsed: 3}, {Name: "b", Mode: "proxy"}}},
		{Site: "empty"},
	})
	want := []metrics.Capacity{{Site: "lab", Segment: "a", Resource: "addresses", Used: 3, Size: 12},
		{Site: "lab", Segment: "b", Resource: "addresses"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestGaugesAreRefreshedEvery30Seconds: the fleet is counted at once, and again after 30 s and not before.
func TestGaugesAreRefreshedEvery30Seconds(t *testing.T) {
	st, fake, registry := storetest.New(t), clock.NewFake(time.Now()), metrics.NewRegistry()
	authority, err := ca.New(ca.Config{Dir: filepath.Join(t.TempDir(), "ca")})
	if err != nil {
		t.Fatal(err)
	}
	certs, err := ca.NewServerCerts(t.Context(), authority, []string{"localhost"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.Open(blob.Config{Path: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	counts := &gauges{store: st, clock: fake, metrics: metrics.New(registry), sessions: session.NewRegistry(),
		log: testkit.Logger(t), ca: authority, certs: certs, blobs: blobs, version: "test", id: "c-test",
		frontpageEnds: func() time.Time { return time.Time{} }, ready: func() error { return nil }}
	register := func(id string) {
		t.Helper()
		if _, err := st.Machines.Register(t.Context(), &baremetalv1.Machine{MachineId: id}, "tester",
			time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	counted := func() (n float64) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "ingot_machines_total" {
				for _, m := range f.GetMetric() {
					n += m.GetGauge().GetValue()
				}
			}
		}
		return n
	}
	register("m-1")
	ctx, stop := context.WithCancel(t.Context())
	g, _ := task.New(ctx)
	g.Go("gauges", counts.refresh)
	t.Cleanup(func() {
		stop()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	testkit.Eventually(t, 30*time.Second, func() bool { return counted() == 1 }, "not counted at the start")
	register("m-2")
	fake.Advance(30*time.Second - 1)
	if n := counted(); n != 1 {
		t.Errorf("%v machines before their time", n)
	}
	fake.Advance(1)
	testkit.Eventually(t, 30*time.Second, func() bool { return counted() == 2 }, "not counted again after 30 s")
}
