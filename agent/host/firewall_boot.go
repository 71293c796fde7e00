package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

const (
	// bootFirewallFile, below the root, holds the last policy that has proved itself, as JSON. A boot loads it before the
	// network is up. It is written after the commit alone, so that a rollback finds the right one in it.
	bootFirewallFile = "etc/ingot/network/firewall.json"
	// closedGeneration marks the table that a boot loads where no policy can be read. No policy has this generation.
	closedGeneration = 0
)

// ErrFirewallFile: the policy for the boot cannot be read, and the closed policy takes its place.
var ErrFirewallFile = errors.New("the packet filter's policy cannot be read")

// bootFirewall is the content of bootFirewallFile.
type bootFirewall struct {
	// SHA256 is measured over Policy without white space. A damaged file, or one that was edited by hand, is not believed.
	SHA256 string          `json:"sha256"`
	Policy json.RawMessage `json:"policy"`
}

// closedPolicy lets nothing in that nobody here asked for, and no mail out. The agent opens its connection to the
// controller itself, so that the controller's answers come in. The controllers are those that are known, perhaps none.
func closedPolicy(g *Guard) FirewallPolicy {
	p := FirewallPolicy{Generation: closedGeneration, InputDefault: VerdictDrop}
	if g == nil {
		return p
	}
	for _, known := range []*FirewallPolicy{g.Firewall, g.NextFirewall} {
		if known != nil {
			p.Controllers = append(p.Controllers, known.Controllers...)
		}
	}
	return p
}

// bootPolicy decides which policy a boot loads: the one that a committed change has set, else the file's, else the one
// from before the last change. nil: there never was one. An unproven policy is never loaded. The error is
// ErrFirewallFile where a policy exists and cannot be read.
func bootPolicy(file *FirewallPolicy, fileErr error, g *Guard, guardErr error) (*FirewallPolicy, error) {
	switch {
	case g != nil && g.State == GuardCommitted && g.NextFirewall != nil:
		return g.NextFirewall, nil
	case file != nil:
		return file, nil
	case g != nil && g.State != GuardCommitted && g.Firewall != nil:
		return g.Firewall, nil
	case fileErr != nil || guardErr != nil:
		return nil, fmt.Errorf("%w: %w", ErrFirewallFile, errors.Join(fileErr, guardErr))
	case g != nil && g.State == GuardCommitted && g.SetsFirewall:
		return nil, fmt.Errorf("%w: command %s has set one, and there is no %s", ErrFirewallFile, g.CommandID,
			bootFirewallFile)
	}
	return nil, nil
}

// FirewallLoad is what LoadFirewall has found and done.
type FirewallLoad struct {
	// State is the table afterwards.
	State FirewallState
	// Loaded reports whether the table was made now.
	Loaded bool
}

// LoadFirewall puts the policy of the last commit into a kernel that has no table of ours. It is for the boot, before
// the network is up, and needs neither the agent nor its state directory. A table that is there stays as it is, since
// it may be newer. Where the policy cannot be read, the closed policy is loaded, and the error is ErrFirewallFile.
func (l *Linux) LoadFirewall(ctx context.Context) (FirewallLoad, error) {
	l.firewall.Lock()
	defer l.firewall.Unlock()
	file, fileErr := l.readBootFirewall()
	g, guardErr := l.Guarded(ctx)
	p, broken := bootPolicy(file, fileErr, g, guardErr)
	now, err := l.Firewall(ctx)
	if err != nil {
		return FirewallLoad{}, errors.Join(broken, err)
	}
	if now.Present && !now.Closed() || p == nil && broken == nil {
		return FirewallLoad{State: now}, nil
	}
	if p != nil {
		if err = loadTable(*p); err == nil {
			now, err = l.Firewall(ctx)
			return FirewallLoad{State: now, Loaded: true}, err
		}
		broken = err
	}
	if now.Closed() {
		return FirewallLoad{State: now}, broken
	}
	closed := closedPolicy(g)
	if err := replaceTable(metaComment(closed), closed.chains()); err != nil {
		return FirewallLoad{}, errors.Join(broken, err)
	}
	now, err = l.Firewall(ctx)
	return FirewallLoad{State: now, Loaded: true}, errors.Join(broken, err)
}

func loadTable(p FirewallPolicy) error {
	if err := p.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrFirewallFile, err)
	}
	return replaceTable(metaComment(p), p.chains())
}

// Closed reports whether the table is the closed policy's, which a boot has loaded for want of another.
func (s FirewallState) Closed() bool {
	return s.Present && s.Generation == closedGeneration && !s.Drifted()
}

// Outdated reports whether the table is ours and untouched and yet not what this version makes of the policy: an older
// version has made it, or a boot that could not read the policy.
func (s FirewallState) Outdated(p FirewallPolicy) bool {
	return s.Closed() || s.Present && !s.Drifted() && s.Generation == p.Generation && s.Digest != p.Digest()
}

// KeepFirewall writes down the policy that boots are to load. It must have proved itself.
func (l *Linux) KeepFirewall(_ context.Context, p FirewallPolicy) error {
	p.OverwriteDrift, p.OverwriteDigest = false, ""
	if err := p.Validate(); err != nil {
		return err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode %s: %w", bootFirewallFile, err)
	}
	old, err := l.readBootFirewall()
	if err == nil && old != nil {
		if was, err := json.Marshal(old); err == nil && bytes.Equal(was, text) {
			return nil
		}
	}
	return l.writeJSON(bootFirewallFile, bootFirewall{SHA256: hexSHA256(text), Policy: text})
}

// keepCommitted writes down the policy of a committed change. A boot finds it in the guard's record as well, until the
// next change replaces that record.
func (l *Linux) keepCommitted(ctx context.Context, g *Guard) error {
	if g == nil || g.State != GuardCommitted || g.NextFirewall == nil {
		return nil
	}
	return l.KeepFirewall(ctx, *g.NextFirewall)
}

// readBootFirewall gives nil where there is no file.
func (l *Linux) readBootFirewall() (*FirewallPolicy, error) {
	var f bootFirewall
	if found, err := l.readJSON(bootFirewallFile, &f); err != nil || !found {
		return nil, err
	}
	var text bytes.Buffer
	if err := json.Compact(&text, f.Policy); err != nil {
		return nil, fmt.Errorf("read %s: %w", bootFirewallFile, err)
	}
	if got := hexSHA256(text.Bytes()); got != f.SHA256 {
		return nil, fmt.Errorf("read %s: its policy has the SHA-256 %s, and the file says %q", bootFirewallFile, got,
			f.SHA256)
	}
	var p FirewallPolicy
	if err := json.Unmarshal(text.Bytes(), &p); err != nil {
		return nil, fmt.Errorf("read %s: %w", bootFirewallFile, err)
	}
	return &p, nil
}

func hexSHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
