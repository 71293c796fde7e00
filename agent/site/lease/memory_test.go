package lease_test

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/site/lease"
)

func aLease(n int, ends time.Time) lease.Lease {
	return lease.Lease{
		Segment: "rack1", Address: addr("10.1.0.20"), MAC: mac(n), State: lease.Bound, Hostname: "n1", Since: start,
		Ends: ends,
	}
}

func TestMemoryStore(t *testing.T) {
	t.Parallel()
	var m lease.Memory
	for _, l := range []lease.Lease{aLease(1, start), aLease(2, start)} {
		if err := m.SaveLeases(t.Context(), []lease.Lease{l}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := m.LoadLeases(t.Context(), "rack1")
	if err != nil || len(got) != 1 || got[0].MAC != mac(2) {
		t.Errorf("%+v, %v", got, err)
	}
}
