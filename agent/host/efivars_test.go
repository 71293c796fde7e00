package host

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// uefiHost is a host whose efivarfs is a directory.
func uefiHost(t *testing.T, variables map[string][]byte) (*Linux, string) {
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
	return New(Config{Root: root}), vars
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
	pxe := BootNextState{Set: true, Entry: "Boot0003", Description: "UEFI PXEv4", Target: "pxe 52:54:00:12:34:56"}

	change, err := h.SetBootNext(t.Context(), Effect{}, BootTarget{Method: BootPXE})
	if err != nil || change.Old.Set || change.New != pxe {
		t.Fatalf("SetBootNext = %+v, %v", change, err)
	}
	raw, err := os.ReadFile(filepath.Join(vars, "BootNext"+efiGlobal))
	if err != nil || !bytes.Equal(raw, []byte{7, 0, 0, 0, 3, 0}) {
		t.Fatalf("variable holds % x, %v", raw, err)
	}
	change, err = h.SetBootNext(t.Context(), Effect{}, BootTarget{Method: BootPXE})
	if err != nil || change.Old != pxe || change.New != pxe {
		t.Fatalf("second SetBootNext = %+v, %v", change, err)
	}
	for range 2 {
		if err := h.ClearBootNext(t.Context(), Effect{}); err != nil {
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
	change, err := h.SetBootNext(t.Context(), Effect{}, BootTarget{Method: BootPXE})
	if err != nil || change.Old.Entry != "Boot0001" || change.Old.Description != "debian" ||
		change.New.Entry != "Boot0003" {
		t.Fatalf("SetBootNext = %+v, %v", change, err)
	}
}

func TestBootNextRefusals(t *testing.T) {
	t.Parallel()
	bios := New(Config{Root: t.TempDir()})
	unmounted, _ := uefiHost(t, nil)
	good, vars := uefiHost(t, usualVariables())
	for _, tc := range []struct {
		name   string
		host   *Linux
		target BootTarget
		kind   error
		reason string
	}{
		{"BIOS", bios, BootTarget{Method: BootPXE}, ErrUnsupported, ReasonNoUEFI},
		{"efivarfs not mounted", unmounted, BootTarget{Method: BootPXE}, ErrUnsupported, ReasonNoEFIVars},
		{"no such entry", good, BootTarget{Method: BootHTTP}, ErrUnsupported, ReasonNoBootEntry},
		{"no such method", good, BootTarget{Method: "floppy"}, ErrInvalid, ReasonInvalid},
		{"bad MAC", good, BootTarget{Method: BootPXE, MAC: "zz"}, ErrInvalid, ReasonInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := tc.host.SetBootNext(t.Context(), Effect{}, tc.target)
			if !errors.Is(err, tc.kind) || ReasonOf(err) != tc.reason {
				t.Errorf("error %v (%s), want %v (%s)", err, ReasonOf(err), tc.kind, tc.reason)
			}
			if _, err := os.Stat(filepath.Join(vars, "BootNext"+efiGlobal)); err == nil {
				t.Error("a refusal wrote the variable")
			}
		})
	}
}
