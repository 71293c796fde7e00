package boot

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/system"
)

// uefiHost is a host whose efivarfs is a directory.
func uefiHost(t *testing.T, variables map[string][]byte) (*Control, string) {
	t.Helper()
	root := t.TempDir()
	vars := filepath.Join(root, "sys/firmware/efi/efivars")
	if err := os.MkdirAll(vars, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range variables {
		if err := os.WriteFile(filepath.Join(vars, name+efiGlobal), append([]byte{7, 0, 0, 0}, content...),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &Control{System: system.NewSystem(root, false, slog.Default()), EFIVars: vars}, vars
}

func usualVariables() map[string][]byte {
	return map[string][]byte{
		"BootOrder": {1, 0, 3, 0},
		"Boot0001":  option(1, "debian", path(diskNode(), endNode())),
		"Boot0003":  option(1, "UEFI PXEv4", path(pciNode(), macNode(0x56), ipv4Node(), endNode())),
		"Boot0007":  {1, 2, 3}, // broken firmware entry
	}
}

func TestBootNextIsSetReadAndCleared(t *testing.T) {
	t.Parallel()
	h, vars := uefiHost(t, usualVariables())
	pxe := NextState{Set: true, Entry: "Boot0003", Description: "UEFI PXEv4", Target: "pxe 52:54:00:12:34:56"}

	change, err := h.SetBootNext(t.Context(), effect.Cause{}, Target{Method: PXE})
	if err != nil || change.Old.Set || change.New != pxe {
		t.Fatalf("SetBootNext = %+v, %v", change, err)
	}
	raw, err := os.ReadFile(filepath.Join(vars, "BootNext"+efiGlobal))
	if err != nil || !bytes.Equal(raw, []byte{7, 0, 0, 0, 3, 0}) {
		t.Fatalf("variable holds % x, %v", raw, err)
	}
	change, err = h.SetBootNext(t.Context(), effect.Cause{}, Target{Method: PXE})
	if err != nil || change.Old != pxe || change.New != pxe {
		t.Fatalf("second SetBootNext = %+v, %v", change, err)
	}
	for range 2 {
		if err := h.ClearBootNext(t.Context(), effect.Cause{}); err != nil {
			t.Fatal(err)
		}
		if s, err := h.BootNext(t.Context()); err != nil || s.Set {
			t.Fatalf("after clearing: %+v, %v", s, err)
		}
	}
}

func TestBootNextReplacesAnotherEntry(t *testing.T) {
	t.Parallel()
	v := usualVariables()
	v["BootNext"] = []byte{1, 0}
	h, _ := uefiHost(t, v)
	change, err := h.SetBootNext(t.Context(), effect.Cause{}, Target{Method: PXE})
	if err != nil || change.Old.Entry != "Boot0001" || change.Old.Description != "debian" ||
		change.New.Entry != "Boot0003" {
		t.Fatalf("SetBootNext = %+v, %v", change, err)
	}
}

func TestBootNextRefusals(t *testing.T) {
	t.Parallel()
	bios := &Control{System: system.NewSystem(t.TempDir(), false, slog.Default()), EFIVars: "/nowhere/efivars"}
	unmounted, _ := uefiHost(t, nil)
	good, vars := uefiHost(t, usualVariables())
	for _, tc := range []struct {
		name   string
		host   *Control
		target Target
		kind   error
		reason string
	}{
		{"BIOS", bios, Target{Method: PXE}, effect.ErrUnsupported, effect.ReasonNoUEFI},
		{"efivarfs not mounted", unmounted, Target{Method: PXE}, effect.ErrUnsupported, effect.ReasonNoEFIVars},
		{"no such entry", good, Target{Method: HTTP}, effect.ErrUnsupported, effect.ReasonNoBootEntry},
		{"no such method", good, Target{Method: "floppy"}, effect.ErrInvalid, effect.ReasonInvalid},
		{"bad MAC", good, Target{Method: PXE, MAC: "zz"}, effect.ErrInvalid, effect.ReasonInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := tc.host.SetBootNext(t.Context(), effect.Cause{}, tc.target)
			if !errors.Is(err, tc.kind) || effect.ReasonOf(err) != tc.reason {
				t.Errorf("error %v (%s), want %v (%s)", err, effect.ReasonOf(err), tc.kind, tc.reason)
			}
			if _, err := os.Stat(filepath.Join(vars, "BootNext"+efiGlobal)); err == nil {
				t.Error("a refusal wrote the variable")
			}
		})
	}
}
