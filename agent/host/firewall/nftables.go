package firewall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/textdiff"
)

const (
	// fwTableName is our table, of family inet. No other table is ever touched.
	fwTableName = "ingot"
	// fwMetaChain hooks nowhere. The comment of its one rule holds generation and digest.
	fwMetaChain = "meta"
)

// Nftables holds our own table of the kernel's packet filter.
type Nftables struct {
	mu sync.Mutex // from reading our table to having replaced it
}

// Firewall reads our table from the kernel.
func (n *Nftables) Firewall(ctx context.Context) (State, error) {
	if err := ctx.Err(); err != nil {
		return State{}, err
	}
	conn, err := nftables.New()
	if err != nil {
		return State{}, nftErr("open nftables", err)
	}
	return readFirewall(conn)
}

// ApplyFirewall replaces our table in one transaction and reads it back.
func (n *Nftables) ApplyFirewall(ctx context.Context, _ effect.Cause, p Policy) error {
	if err := p.Validate(); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now, err := n.Firewall(ctx)
	if err != nil {
		return err
	}
	if apply, err := now.Admits(p); err != nil || !apply {
		return err
	}
	if err := replaceTable(metaComment(p), p.chains()); err != nil {
		return err
	}
	after, err := n.Firewall(ctx)
	if err != nil {
		return fmt.Errorf("read the firewall back: %w", err)
	}
	if !after.Holds(p) {
		return fmt.Errorf("apply firewall generation %d: kernel holds generation %d with digest %s: %w",
			p.Generation, after.Generation, after.Digest, effect.ErrReadBack)
	}
	return nil
}

// RemoveFirewall removes our table.
func (n *Nftables) RemoveFirewall(ctx context.Context, _ effect.Cause) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	now, err := n.Firewall(ctx)
	if err != nil || !now.Present {
		return err
	}
	conn, err := nftables.New()
	if err != nil {
		return nftErr("open nftables", err)
	}
	conn.DelTable(ourTable())
	if err := conn.Flush(); err != nil {
		return nftErr("remove our nftables table", err)
	}
	return nil
}

func ourTable() *nftables.Table {
	return &nftables.Table{Name: fwTableName, Family: nftables.TableFamilyINet}
}

// replaceTable sends everything as one batch, which the kernel takes or leaves as a whole: there is no moment
// without a table, and an error leaves the old one.
func replaceTable(comment string, chains []fwChain) error {
	conn, err := nftables.New()
	if err != nil {
		return nftErr("open nftables", err)
	}
	table := ourTable()
	conn.AddTable(table) // so that there is one to delete
	conn.DelTable(table)
	conn.AddTable(table)
	meta := conn.AddChain(&nftables.Chain{Name: fwMetaChain, Table: table})
	conn.AddRule(&nftables.Rule{Table: table, Chain: meta, UserData: commentData(comment),
		Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}}})
	for _, c := range chains {
		chain := conn.AddChain(&nftables.Chain{
			Name: c.name, Table: table, Type: nftables.ChainTypeFilter,
			Hooknum:  nftables.ChainHookRef(nftables.ChainHook(c.hook)),
			Priority: nftables.ChainPriorityRef(nftables.ChainPriority(c.priority)), Policy: &c.policy,
		})
		for _, r := range c.rules {
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: r.exprs, UserData: commentData(r.comment)})
		}
	}
	if err := conn.Flush(); err != nil {
		return nftErr("replace our nftables table", err)
	}
	return nil
}

func readFirewall(conn *nftables.Conn) (State, error) {
	t, err := readTable(conn)
	if err != nil || t == nil {
		return State{}, err
	}
	return State{
		Present: true, Generation: t.generation, Recorded: t.recorded, Digest: digestChains(t.chains, t.extra),
	}, nil
}

// fwTable is our table as the kernel holds it.
type fwTable struct {
	chains     []fwChain
	extra      []string // what we never make
	generation uint64
	recorded   string
}

// readTable returns nil where there is no table of ours.
func readTable(conn *nftables.Conn) (*fwTable, error) {
	table, err := findTable(conn)
	if err != nil || table == nil {
		return nil, err
	}
	all, err := conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, nftErr("list nftables chains", err)
	}
	t := &fwTable{}
	for _, c := range all {
		if c.Table.Name != fwTableName {
			continue
		}
		chain, err := readChain(conn, table, c)
		if err != nil {
			return nil, err
		}
		if c.Name == fwMetaChain {
			t.generation, t.recorded = parseMeta(chain)
			continue
		}
		t.chains = append(t.chains, chain)
	}
	t.extra, err = foreignObjects(conn, table)
	return t, err
}

// FirewallDiff shows how our table differs from a policy, rule by rule. A rule is shown by its comment; a foreign one
// without a comment by its expressions.
func (n *Nftables) FirewallDiff(ctx context.Context, p Policy) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	conn, err := nftables.New()
	if err != nil {
		return "", nftErr("open nftables", err)
	}
	t, err := readTable(conn)
	if err != nil {
		return "", err
	}
	want, have := ruleLines(p.chains(), nil), []string(nil)
	if t != nil {
		have = ruleLines(t.chains, t.extra)
	}
	return textdiff.Unified("committed/nftables/inet ingot", "host/nftables/inet ingot", want, have), nil
}

func ruleLines(chains []fwChain, extra []string) []string {
	chains = slices.Clone(chains)
	slices.SortFunc(chains, func(a, b fwChain) int { return strings.Compare(a.name, b.name) })
	var out []string
	for _, c := range chains {
		policy := "accept"
		if c.policy == nftables.ChainPolicyDrop {
			policy = "drop"
		}
		out = append(out, fmt.Sprintf("%s: policy %s", c.name, policy))
		for _, r := range c.rules {
			text := r.comment
			if text == "" {
				text = "rule without a comment:"
			}
			// Two rules may have one comment and not one meaning.
			out = append(out, fmt.Sprintf("%s: %s [%.8s]", c.name, text, textdiff.Digest(r.lines())[len("sha256:"):]))
		}
	}
	return append(out, extra...)
}

// lines are the rule's expressions.
func (r fwRule) lines() []string {
	var out []string
	for _, e := range r.exprs {
		out = append(out, fmt.Sprintf("%T%s", e, exprJSON(e)))
	}
	return out
}

func findTable(conn *nftables.Conn) (*nftables.Table, error) {
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, nftErr("list nftables tables", err)
	}
	i := slices.IndexFunc(tables, func(t *nftables.Table) bool { return t.Name == fwTableName })
	if i < 0 {
		return nil, nil
	}
	return tables[i], nil
}

func readChain(conn *nftables.Conn, table *nftables.Table, c *nftables.Chain) (fwChain, error) {
	chain := fwChain{name: c.Name}
	if c.Hooknum != nil {
		chain.hook = uint32(*c.Hooknum)
	}
	if c.Priority != nil {
		chain.priority = int32(*c.Priority)
	}
	if c.Policy != nil {
		chain.policy = *c.Policy
	}
	rules, err := conn.GetRules(table, c)
	if err != nil {
		return chain, nftErr("list nftables rules of "+c.Name, err)
	}
	for _, r := range rules {
		chain.rules = append(chain.rules, fwRule{comment: commentOf(r.UserData), exprs: r.Exprs})
	}
	return chain, nil
}

// foreignObjects names foreign objects in our table beside chains; we make no sets.
func foreignObjects(conn *nftables.Conn, table *nftables.Table) ([]string, error) {
	sets, err := conn.GetSets(table)
	if err != nil {
		return nil, nftErr("list nftables sets", err)
	}
	var names []string
	for _, s := range sets {
		names = append(names, "set "+s.Name)
	}
	return names, nil
}

func metaComment(p Policy) string {
	return fmt.Sprintf("ingot generation=%d digest=%s", p.Generation, p.Digest())
}

// parseMeta reads what metaComment wrote. For anything else it returns generation 0, and so a drifted state.
func parseMeta(c fwChain) (generation uint64, digest string) {
	if len(c.rules) != 1 {
		return 0, ""
	}
	for field := range strings.FieldsSeq(c.rules[0].comment) {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "generation":
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				return 0, ""
			}
			generation = n
		case "digest":
			digest = value
		}
	}
	return generation, digest
}

// commentData packs a comment the way that nft shows it: type 0, length, text with its NUL (libnftnl, udata.h).
func commentData(comment string) []byte {
	return userdata.AppendString(nil, userdata.TypeComment, comment)
}

// commentOf is the first comment in the user data. The data may be anybody's, so every length is checked.
func commentOf(data []byte) string {
	for len(data) >= 2 {
		end := 2 + int(data[1])
		if end > len(data) {
			return ""
		}
		if userdata.Type(data[0]) == userdata.TypeComment {
			return strings.TrimRight(string(data[2:end]), "\x00")
		}
		data = data[end:]
	}
	return ""
}

// nftErr distinguishes a kernel without support from one that refused.
func nftErr(doing string, err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return effect.Refuse(effect.ErrUnsupported, effect.ReasonNoPrivilege, "%s: %v (CAP_NET_ADMIN is needed)", doing, err)
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EAFNOSUPPORT):
		return effect.Refuse(effect.ErrUnsupported, effect.ReasonNoNftables, "%s: %v", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// LoadResult is what a boot has found and done.
type LoadResult struct {
	// State is the table afterwards.
	State State
	// Loaded reports whether the table was made now.
	Loaded bool
}

// Load puts the policy into a kernel that has no table of ours. A table that is there stays as it is, unless it is the
// closed policy's. broken is the reason why there is no policy to load, or nil: then, or if the policy cannot be
// loaded, closed takes its place. Without either there is nothing to do.
func (n *Nftables) Load(ctx context.Context, p *Policy, closed Policy, broken error) (
	LoadResult, error,
) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now, err := n.Firewall(ctx)
	if err != nil {
		return LoadResult{}, errors.Join(broken, err)
	}
	if now.Present && !now.Closed() || p == nil && broken == nil {
		return LoadResult{State: now}, nil
	}
	if p != nil {
		if err = loadTable(*p); err == nil {
			now, err = n.Firewall(ctx)
			return LoadResult{State: now, Loaded: true}, err
		}
		broken = err
	}
	if now.Closed() {
		return LoadResult{State: now}, broken
	}
	if err := replaceTable(metaComment(closed), closed.chains()); err != nil {
		return LoadResult{}, errors.Join(broken, err)
	}
	now, err = n.Firewall(ctx)
	return LoadResult{State: now, Loaded: true}, errors.Join(broken, err)
}

func loadTable(p Policy) error {
	if err := p.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrPolicyFile, err)
	}
	return replaceTable(metaComment(p), p.chains())
}
