package host

import (
	"slices"
	"testing"
)

func TestInstallerCapabilities(t *testing.T) {
	h := New(Config{Installer: true})
	caps := h.Capabilities()
	if !slices.Contains(caps, CapRepave) || !slices.Contains(caps, CapErase) {
		t.Errorf("an installer has %v", caps)
	}
	h.Installer = false
	caps = h.Capabilities()
	if slices.Contains(caps, CapRepave) || slices.Contains(caps, CapErase) {
		t.Errorf("a host has %v", caps)
	}
}
