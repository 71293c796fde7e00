package firewall

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/hosttest"
)

// TestATableOfAnOlderVersionIsMadeAnew: an upgraded agent has other rules for the same policy, and that is no drift.
func TestATableOfAnOlderVersionIsMadeAnew(t *testing.T) {
	t.Parallel()
	if !hosttest.InNamespace(t) {
		return
	}
	h, p := &Nftables{}, policy(1)
	older := p.chains()[:2] // which had no chain for forwarded packets
	hosttest.Must(t, replaceTable(fmt.Sprintf("ingot generation=1 digest=%s", digestChains(older, nil)), older))
	now, err := h.Firewall(context.WithoutCancel(t.Context()))
	hosttest.Must(t, err)
	if !now.Outdated(p) || now.Drifted() || now.Outdated(policy(2)) {
		t.Errorf("outdated %t, drifted %t: %+v", now.Outdated(p), now.Drifted(), now)
	}
	if err := h.ApplyFirewall(t.Context(), effect.Cause{}, p); effect.ReasonOf(err) != effect.ReasonGenerationReused {
		t.Errorf("an order of the same generation: %v", err)
	}
	p.Renew = true
	if s := mustApply(t, h, p); !s.Holds(p) || s.Outdated(p) {
		t.Errorf("made anew: %+v", s)
	}
}

// TestOneChangedTableMayBeReplaced: an accepted drift is that of one digest.
func TestOneChangedTableMayBeReplaced(t *testing.T) {
	t.Parallel()
	if !hosttest.InNamespace(t) {
		return
	}
	h, next := &Nftables{}, policy(2)
	mustApply(t, h, policy(1))
	hosttest.Shell(t, "nft add rule inet ingot input tcp dport 4711 accept")
	seen, err := h.Firewall(t.Context())
	hosttest.Must(t, err)
	next.OverwriteDigest = seen.Digest
	hosttest.Shell(t, "nft add rule inet ingot input tcp dport 4712 accept")
	if err := h.ApplyFirewall(t.Context(), effect.Cause{}, next); !errors.Is(err, effect.ErrDrift) {
		t.Errorf("another change: %v", err)
	}
	now, err := h.Firewall(t.Context())
	hosttest.Must(t, err)
	next.OverwriteDigest = now.Digest
	if s := mustApply(t, h, next); !s.Holds(next) {
		t.Errorf("holds %+v", s)
	}
}
