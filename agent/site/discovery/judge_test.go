package discovery

import (
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/ingot-metal/ingot/agent/provider"
)

func TestJudge(t *testing.T) {
	said := func(n byte, h provider.Hardware) Found {
		return Found{Address: netip.AddrFrom4([4]byte{10, 42, 1, n}), Hardware: h}
	}
	all := []Found{
		said(1, provider.Hardware{Serial: "SN-1", UUID: "AB", MACs: []string{"00:25:90:00:00:01", "0a:00:00:00:00:01"}}),
		said(2, provider.Hardware{Serial: "SN-2", UUID: "ab"}),
		said(3, provider.Hardware{Serial: "To be filled by O.E.M.", UUID: "00000000-0000-0000-0000-000000000000"}),
		said(4, provider.Hardware{Serial: "To Be Filled By O.E.M.", UUID: "00000000-0000-0000-0000-000000000000",
			MACs: []string{"", "nonsense", "00:00:00:00:00:00", "01:00:5e:00:00:01", "52-54-00-00-00-09", "52:54:00:00:00:09"}}),
		said(5, provider.Hardware{Serial: "SN-5\x1b[2J", Model: strings.Repeat("y", 5000)}),
		said(6, provider.Hardware{MACs: []string{"00:25:90:00:00:01"}}),
		said(7, provider.Hardware{MACs: []string{"0a:00:00:00:00:01"}}),
	}
	judge(all)
	for i, want := range []string{"the MAC address 00:25:90:00:00:01 is what 10.42.1.6 says too",
		"the UUID ab is what 10.42.1.1 says too", "", "", "its model has 5000 characters",
		"the MAC address 00:25:90:00:00:01 is what 10.42.1.1 says too", ""} {
		if all[i].Problem != want {
			t.Errorf("%v has the problem %q, want %q", all[i].Address, all[i].Problem, want)
		}
	}
	if f := all[3]; f.Serial != "" || f.UUID != "" || len(f.MACs) != 1 || f.MACs[0] != "52:54:00:00:00:09" {
		t.Errorf("what factories leave: %+v", f)
	}
	if f := all[4]; len(f.Model) != mostText || f.Serial != "SN-5[2J" {
		t.Errorf("cleaned: %q, %q", f.Model, f.Serial)
	}
}

func TestGateOpensWithTheFirstThatTakesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, at := newGate(), netip.MustParseAddr("10.42.1.1")
		for range mostRefused {
			if !g.enter(t.Context()) {
				t.Fatal("no log-in may begin")
			}
		}
		var entered atomic.Int32
		for range 2 {
			go func() {
				if g.enter(t.Context()) {
					entered.Add(1)
				}
			}()
		}
		synctest.Wait()
		if entered.Load() != 0 {
			t.Fatal("four are under way before one has taken the credentials")
		}
		g.leave(taken, at)
		synctest.Wait()
		if n := entered.Load(); n != 2 {
			t.Errorf("%d of 2 go on after that", n)
		}
		for range mostRefused {
			if g.problem("ref") != "" {
				t.Error("too early")
			}
			g.leave(refused, at)
		}
		if g.enter(t.Context()) || !strings.Contains(g.problem("ref"), "10.42.1.1, 10.42.1.1, 10.42.1.1") {
			t.Errorf("after three in a row: %q", g.problem("ref"))
		}
	})
}
