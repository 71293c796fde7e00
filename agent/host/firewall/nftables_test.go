package firewall

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/hosttest"
)

// generationID is the kernel's count of nftables transactions in this namespace.
func generationID(t *testing.T) uint32 {
	t.Helper()
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	replies, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   make([]byte, 4),
	})
	if err != nil || len(replies) == 0 {
		t.Fatalf("ask for the generation: %v", err)
	}
	ad, err := netlink.NewAttributeDecoder(replies[0].Data[4:])
	if err != nil {
		t.Fatal(err)
	}
	for ad.Next() {
		if ad.Type() == unix.NFTA_GEN_ID {
			b := ad.Bytes()
			return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
		}
	}
	t.Fatal("the kernel did not say its generation")
	return 0
}

func TestFirewallReadBackEqualsWhatWasApplied(t *testing.T) {
	t.Parallel()
	if !hosttest.InNamespace(t) {
		return
	}
	h := &Nftables{}
	if s, err := h.Firewall(t.Context()); err != nil || s.Present {
		t.Fatalf("before: %+v, %v", s, err)
	}
	for generation, change := range []func(*Policy){
		func(*Policy) {},
		func(p *Policy) { p.InputDefault = VerdictAccept },
		func(p *Policy) { p.SMTPEgressAllowed = true },
		func(p *Policy) { p.Allow, p.RateLimits, p.Controllers = nil, nil, nil },
	} {
		p := policy(uint64(generation) + 1)
		change(&p)
		s := mustApply(t, h, p)
		if !s.Holds(p) || s.Drifted() || s.Digest != p.Digest() || s.Recorded != s.Digest {
			t.Errorf("generation %d: kernel holds %+v, policy has digest %s", p.Generation, s, p.Digest())
		}
	}
	for range 2 {
		if err := h.RemoveFirewall(t.Context(), effect.Cause{}); err != nil {
			t.Fatal(err)
		}
		if s, err := h.Firewall(t.Context()); err != nil || s.Present {
			t.Fatalf("after removing: %+v, %v", s, err)
		}
	}
}

func TestFirewallIsReplacedInOneTransaction(t *testing.T) {
	t.Parallel()
	if !hosttest.InNamespace(t) {
		return
	}
	h := &Nftables{}
	start := generationID(t)
	for generation := uint64(1); generation <= 3; generation++ {
		mustApply(t, h, policy(generation))
		if got := generationID(t) - start; uint64(got) != generation {
			t.Fatalf("%d policies took %d transactions", generation, got)
		}
	}
	mustApply(t, &Nftables{}, policy(3)) // another process, the same generation
	if got := generationID(t) - start; got != 3 {
		t.Errorf("the same generation again took %d transactions", got-3)
	}
}

func TestFirewallLeavesOtherTablesAlone(t *testing.T) {
	t.Parallel()
	if !hosttest.InNamespace(t) {
		return
	}
	foreign := foreignTable(t)
	before := rulesOf(t, foreign)
	h := &Nftables{}
	mustApply(t, h, policy(1))
	mustApply(t, h, policy(2))
	if got := rulesOf(t, foreign); !slices.Equal(got, before) {
		t.Errorf("after applying: handles %v, before %v", got, before)
	}
	if err := h.RemoveFirewall(t.Context(), effect.Cause{}); err != nil {
		t.Fatal(err)
	}
	if got := rulesOf(t, foreign); !slices.Equal(got, before) || len(got) != 1 {
		t.Errorf("after removing: handles %v, before %v", got, before)
	}
}

// foreignTable has our table's name in another family, and a chain with the name of one of ours.
func foreignTable(t *testing.T) *nftables.Chain {
	t.Helper()
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	table := conn.AddTable(&nftables.Table{Name: fwTableName, Family: nftables.TableFamilyIPv4})
	other := conn.AddTable(&nftables.Table{Name: "other", Family: nftables.TableFamilyINet})
	conn.AddChain(&nftables.Chain{Name: "input", Table: other})
	chain := conn.AddChain(&nftables.Chain{Name: "input", Table: table})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: drop()})
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	return chain
}

// rulesOf lists handles: a rule that was taken away and put back has another one.
func rulesOf(t *testing.T, chain *nftables.Chain) (handles []uint64) {
	t.Helper()
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	rules, err := conn.GetRules(chain.Table, chain)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		handles = append(handles, r.Handle)
	}
	return handles
}

func TestFirewallReportsDriftAndReuse(t *testing.T) {
	t.Parallel()
	if !hosttest.InNamespace(t) {
		return
	}
	h := &Nftables{}
	p := policy(1)
	mustApply(t, h, p)

	reused := p
	reused.SMTPEgressAllowed = true
	if err := h.ApplyFirewall(t.Context(), effect.Cause{}, reused); !errors.Is(err, effect.ErrInvalid) ||
		effect.ReasonOf(err) != effect.ReasonGenerationReused {
		t.Errorf("another policy of the same generation: %v", err)
	}
	for name, meddle := range map[string]func(*nftables.Conn, *nftables.Table){
		"rule": func(c *nftables.Conn, table *nftables.Table) {
			c.InsertRule(&nftables.Rule{Table: table, Chain: &nftables.Chain{Name: "input", Table: table}, Exprs: accept(),
				UserData: []byte{9, 200}})
		},
		"chain": func(c *nftables.Conn, table *nftables.Table) { c.AddChain(&nftables.Chain{Name: "mine", Table: table}) },
		"set": func(c *nftables.Conn, table *nftables.Table) {
			if err := c.AddSet(&nftables.Set{Table: table, Name: "mine", KeyType: nftables.TypeInetService}, nil); err != nil {
				t.Fatal(err)
			}
		},
		"meta": func(c *nftables.Conn, table *nftables.Table) {
			c.FlushChain(&nftables.Chain{Name: fwMetaChain, Table: table})
		},
	} {
		conn, err := nftables.New()
		if err != nil {
			t.Fatal(err)
		}
		meddle(conn, ourTable())
		if err := conn.Flush(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s, err := h.Firewall(t.Context()); err != nil || !s.Drifted() || s.Holds(p) {
			t.Errorf("%s: state %+v, %v", name, s, err)
		}
		for _, generation := range []uint64{1, 2} {
			if err := h.ApplyFirewall(t.Context(), effect.Cause{}, policy(generation)); !errors.Is(err, effect.ErrDrift) {
				t.Errorf("%s: apply generation %d over drift: %v", name, generation, err)
			}
		}
		over := p
		over.OverwriteDrift = true
		if s := mustApply(t, h, over); !s.Holds(p) {
			t.Errorf("%s: after overwriting %+v", name, s)
		}
	}
}

func TestFirewallKeepsTheOldTableOnError(t *testing.T) {
	t.Parallel()
	if !hosttest.InNamespace(t) {
		return
	}
	h := &Nftables{}
	mustApply(t, h, policy(1))
	bad := policy(2).chains()
	bad[1].rules = append(bad[1].rules,
		fwRule{comment: "nowhere", exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: "nowhere"}}})
	if err := replaceTable(metaComment(policy(2)), bad); err == nil {
		t.Fatal("the kernel took a jump to a chain that isn't there")
	}
	if s, err := h.Firewall(t.Context()); err != nil || !s.Holds(policy(1)) {
		t.Errorf("after an error: %+v, %v", s, err)
	}
}

func TestCommentOf(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in   []byte
		want string
	}{
		"ours":          {commentData("hello"), "hello"},
		"after another": {append([]byte{1, 2, 0, 0}, commentData("hello")...), "hello"},
		"none":          {nil, ""},
		"cut short":     {[]byte{0, 20, 'a'}, ""},
		"other cut":     {[]byte{1, 20, 'a'}, ""},
		"header only":   {[]byte{0}, ""},
		"empty":         {[]byte{0, 0}, ""},
		"no NUL at end": {[]byte{0, 1, 'x'}, "x"},
		"other kinds":   {[]byte{1, 1, 'x', 2, 1, 'y'}, ""},
	} {
		if got := commentOf(tc.in); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestPolicyDigestSeesEveryField(t *testing.T) {
	t.Parallel()
	base := policy(1).Digest()
	if policy(2).Digest() != base {
		t.Error("depends on the generation")
	}
	for name, change := range map[string]func(*Policy){
		"default":      func(p *Policy) { p.InputDefault = VerdictAccept },
		"smtp":         func(p *Policy) { p.SMTPEgressAllowed = true },
		"port":         func(p *Policy) { p.Allow[0].FromPort = 23 },
		"range":        func(p *Policy) { p.Allow[2].ToPort = 6011 },
		"source":       func(p *Policy) { p.Allow[0].Source = netip.MustParsePrefix("10.0.0.0/9") },
		"protocol":     func(p *Policy) { p.Allow[0].Protocol = "udp" },
		"rate":         func(p *Policy) { p.RateLimits[0].PerSecond = 11 },
		"burst":        func(p *Policy) { p.RateLimits[0].Burst = 21 },
		"controller":   func(p *Policy) { p.Controllers = p.Controllers[1:] },
		"rule missing": func(p *Policy) { p.Allow = p.Allow[1:] },
	} {
		p := policy(1)
		change(&p)
		if p.Digest() == base {
			t.Errorf("does not see %s", name)
		}
	}
}

func TestPolicyValidate(t *testing.T) {
	t.Parallel()
	if err := policy(1).Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Policy){
		"generation":    func(p *Policy) { p.Generation = 0 },
		"default":       func(p *Policy) { p.InputDefault = "reject" },
		"protocol":      func(p *Policy) { p.Allow[0].Protocol = "icmp" },
		"no port":       func(p *Policy) { p.Allow[0].FromPort = 0 },
		"backwards":     func(p *Policy) { p.Allow[0].ToPort = 1 },
		"rate 0":        func(p *Policy) { p.RateLimits[0].PerSecond = 0 },
		"limit port":    func(p *Policy) { p.RateLimits[0].FromPort = 0 },
		"no controller": func(p *Policy) { p.Controllers[0] = netip.AddrPort{} },
	} {
		p := policy(1)
		change(&p)
		if err := p.Validate(); !errors.Is(err, effect.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The rules are few enough to read: what must always work comes first.
func TestWhatMustAlwaysWorkComesFirst(t *testing.T) {
	t.Parallel()
	for _, c := range policy(1).chains() {
		controllers, lastController, firstDrop := 0, -1, len(c.rules)
		for i, r := range c.rules {
			if len(r.comment) > 10 && r.comment[:10] == "controller" {
				controllers, lastController = controllers+1, i
			}
			if v, ok := r.exprs[len(r.exprs)-1].(*expr.Verdict); ok && v.Kind == expr.VerdictDrop {
				firstDrop = min(firstDrop, i)
			}
		}
		want := 3
		if c.name == "forward" { // the host's own contact is not forwarded
			want = 0
		}
		if c.rules[0].comment != "established" || controllers != want || lastController > firstDrop {
			t.Errorf("chain %s: rules %+v", c.name, c.rules)
		}
	}
}

func policy(generation uint64) Policy {
	return Policy{
		Generation: generation, InputDefault: VerdictDrop,
		Allow: []AllowRule{
			{Protocol: "tcp", FromPort: 22, Source: netip.MustParsePrefix("10.1.2.3/8")},
			{Protocol: "tcp", FromPort: 22, Source: netip.MustParsePrefix("2001:db8::/33")},
			{Protocol: "udp", FromPort: 6000, ToPort: 6010, Source: netip.MustParsePrefix("0.0.0.0/0")},
			{Protocol: "tcp", FromPort: 443},
			{Protocol: "tcp", FromPort: 444, ToPort: 444, Source: netip.MustParsePrefix("192.0.2.7/32")},
		},
		RateLimits: []RateLimit{
			{Protocol: "tcp", FromPort: 22, PerSecond: 10, Burst: 20},
			{Protocol: "udp", FromPort: 6000, ToPort: 6010, PerSecond: 1000},
		},
		Controllers: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:50052"),
			netip.MustParseAddrPort("[2001:db8::1]:50052"), netip.MustParseAddrPort("[::ffff:192.0.2.9]:587")},
	}
}

func mustApply(t *testing.T, h *Nftables, p Policy) State {
	t.Helper()
	if err := h.ApplyFirewall(t.Context(), effect.Cause{}, p); err != nil {
		t.Fatalf("apply generation %d: %v", p.Generation, err)
	}
	s, err := h.Firewall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMain(m *testing.M) { hosttest.Main(m) }
