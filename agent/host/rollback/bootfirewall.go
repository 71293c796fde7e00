package rollback

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ingot-metal/ingot/agent/host/firewall"
)

const (
	// bootFirewallFile, below the root, holds the last policy that has proved itself, as JSON. A boot loads it before the
	// network is up. It is written after the commit alone, so that a rollback finds the right one in it.
	bootFirewallFile = "etc/ingot/network/firewall.json"
)

// bootFirewall is the content of bootFirewallFile.
type bootFirewall struct {
	// SHA256 is measured over Policy without white space. A damaged file, or one that was edited by hand, is not believed.
	SHA256 string          `json:"sha256"`
	Policy json.RawMessage `json:"policy"`
}

// closedPolicy drops all unrequested packets that come in, and all outgoing mail. The agent opens its connection to the
// controller itself, so that the controller's answers come in. The controllers are those that are known, perhaps none.
func closedPolicy(g *Guard) firewall.Policy {
	p := firewall.Policy{Generation: firewall.ClosedGeneration, InputDefault: firewall.VerdictDrop}
	if g == nil {
		return p
	}
	for _, known := range []*firewall.Policy{g.Firewall, g.NextFirewall} {
		if known != nil {
			p.Controllers = append(p.Controllers, known.Controllers...)
		}
	}
	return p
}

// bootPolicy decides which policy a boot loads: the one that a committed change has set, else the file's, else the one
// from before the last change. nil: there never was one. An unproven policy is never loaded. The error is
// ErrPolicyFile where a policy exists and cannot be read.
func bootPolicy(file *firewall.Policy, fileErr error, g *Guard, guardErr error) (*firewall.Policy, error) {
	switch {
	case g != nil && g.State == GuardCommitted && g.NextFirewall != nil:
		return g.NextFirewall, nil
	case file != nil:
		return file, nil
	case g != nil && g.State != GuardCommitted && g.Firewall != nil:
		return g.Firewall, nil
	case fileErr != nil || guardErr != nil:
		return nil, fmt.Errorf("%w: %w", firewall.ErrPolicyFile, errors.Join(fileErr, guardErr))
	case g != nil && g.State == GuardCommitted && g.SetsFirewall:
		return nil, fmt.Errorf("%w: command %s has set one, and there is no %s", firewall.ErrPolicyFile, g.CommandID,
			bootFirewallFile)
	}
	return nil, nil
}

// LoadFirewall puts the policy of the last commit into a kernel that has no table of ours. It is for the boot, before
// the network is up, and needs neither the agent nor its state directory. A table that is there stays as it is, since
// it may be newer. Where the policy cannot be read, the closed policy is loaded, and the error is ErrPolicyFile.
func (w *Watchdog) LoadFirewall(ctx context.Context) (firewall.LoadResult, error) {
	file, fileErr := w.readBootFirewall()
	g, guardErr := w.Guarded(ctx)
	p, broken := bootPolicy(file, fileErr, g, guardErr)
	return w.Table.Load(ctx, p, closedPolicy(g), broken)
}

// KeepFirewall writes down the policy that boots are to load. It must have proved itself.
func (w *Watchdog) KeepFirewall(_ context.Context, p firewall.Policy) error {
	p.OverwriteDrift, p.OverwriteDigest = false, ""
	if err := p.Validate(); err != nil {
		return err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode %s: %w", bootFirewallFile, err)
	}
	old, err := w.readBootFirewall()
	if err == nil && old != nil {
		if was, err := json.Marshal(old); err == nil && bytes.Equal(was, text) {
			return nil
		}
	}
	return w.WriteJSON(bootFirewallFile, bootFirewall{SHA256: hexSHA256(text), Policy: text})
}

// keepCommitted writes down the policy of a committed change. A boot finds it in the guard's record as well, until the
// next change replaces that record.
func (w *Watchdog) keepCommitted(ctx context.Context, g *Guard) error {
	if g == nil || g.State != GuardCommitted || g.NextFirewall == nil {
		return nil
	}
	return w.KeepFirewall(ctx, *g.NextFirewall)
}

// readBootFirewall returns nil where there is no file.
func (w *Watchdog) readBootFirewall() (*firewall.Policy, error) {
	var f bootFirewall
	if found, err := w.ReadJSON(bootFirewallFile, &f); err != nil || !found {
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
	var p firewall.Policy
	if err := json.Unmarshal(text.Bytes(), &p); err != nil {
		return nil, fmt.Errorf("read %s: %w", bootFirewallFile, err)
	}
	return &p, nil
}

func hexSHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
