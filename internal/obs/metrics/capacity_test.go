package metrics

import "testing"

// TestSiteCapacity: a share between 0 and 1 of each resource with a size; a removed one is gone at the next count.
func TestSiteCapacity(t *testing.T) {
	r := NewRegistry()
	m := New(r)
	ratios := func() map[string]float64 {
		t.Helper()
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]float64{}
		for _, f := range families {
			if f.GetName() != "ingot_site_capacity_used_ratio" {
				continue
			}
			for _, one := range f.GetMetric() {
				name := ""
				for _, l := range one.GetLabel() {
					name += l.GetName() + "=" + l.GetValue() + " "
				}
				out[name] = one.GetGauge().GetValue()
			}
		}
		return out
	}
	m.SetCapacity([]Capacity{
		{Site: "lab", Segment: "a", Resource: "addresses", Used: 3, Size: 12},
		{Site: "lab", Segment: "b", Resource: "addresses", Used: 0, Size: 8},
		{Site: "far", Segment: "a", Resource: "addresses"},
	})
	got := ratios()
	if len(got) != 2 || got["resource=addresses segment=a site=lab "] != 0.25 ||
		got["resource=addresses segment=b site=lab "] != 0 {
		t.Errorf("ratios %v", got)
	}
	m.SetCapacity(nil)
	if got := ratios(); len(got) != 0 {
		t.Errorf("left over: %v", got)
	}
}
