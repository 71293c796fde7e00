package reconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/firewall"
)

// keeper is a host with a file for boots, and with a table that another version has made.
type keeper struct {
	*guarded
	kept  []uint64
	older bool
}

func (k *keeper) KeepFirewall(_ context.Context, p firewall.Policy) error {
	k.kept = append(k.kept, p.Generation)
	return k.fails["KeepFirewall"]
}

func (k *keeper) Firewall(ctx context.Context) (firewall.State, error) {
	s, err := k.guarded.Firewall(ctx)
	if k.older {
		s.Digest, s.Recorded = "of another version", "of another version"
	}
	return s, err
}

func (k *keeper) ApplyFirewall(ctx context.Context, e effect.Cause, p firewall.Policy) error {
	k.log = append(k.log, fmt.Sprint("table, anew ", p.Renew))
	return k.guarded.ApplyFirewall(ctx, e, p)
}

// The starting agent writes the committed policy for the next boot, even where the boot has loaded the table already.
// The guard's record holds the policy of its change.
func TestTheCommittedFirewallIsKeptForTheNextBoot(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	k := &keeper{guarded: r.host}
	r.e.cfg.Host = k
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(r.e.Restore(t.Context()))
	if k.kept != nil {
		t.Errorf("without a policy: kept %v", k.kept)
	}
	spec := orderOf(t, 7, &baremetalv1.NetReconfig{
		Firewall:   &baremetalv1.FirewallPolicy{DefaultInput: "drop"},
		Interfaces: []*baremetalv1.NetworkInterface{{Name: "eth0", Addresses: []string{"192.0.2.7/24"}}},
	})
	r.wantResult(r.execute(spec), succeeded, noReason)
	if g := r.host.record; g.NextFirewall == nil || g.NextFirewall.Generation != 7 || g.Firewall != nil {
		t.Errorf("guarded: %+v", g)
	}
	if !slices.Equal(k.kept, []uint64{7}) {
		t.Errorf("after the commit: kept %v", k.kept)
	}
	k.log = nil
	must(r.e.Restore(t.Context()))
	if !slices.Equal(k.kept, []uint64{7, 7}) || len(k.log) != 0 {
		t.Errorf("at a start: kept %v, done %v", k.kept, k.log)
	}
	k.older = true
	must(r.e.Restore(t.Context()))
	r.wantLog("table, anew true")
	k.fails["KeepFirewall"] = errors.New("read-only")
	if err := r.e.Restore(t.Context()); err == nil {
		t.Error("a file that cannot be written is not told of")
	}
}
