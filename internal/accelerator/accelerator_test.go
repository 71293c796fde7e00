package accelerator_test

import (
	"testing"

	"github.com/ingot-metal/ingot/internal/accelerator"
)

// A server's onboard display chip is no accelerator, whatever its vendor.
func TestADisplayChipIsNoAccelerator(t *testing.T) {
	for _, c := range []struct {
		name, class, vendor string
		want                bool
	}{
		{"ASPEED of a BMC", "030000", "1a03", false}, {"Matrox G200 of a BMC", "030000", "102b", false},
		{"ATI ES1000 of a board", "030000", "1002", false}, {"Intel graphics of a processor", "030000", "8086", false},
		{"Hyper-V video", "030000", "1414", false}, {"QEMU's display", "030000", "1234", false},
		{"virtio GPU", "038000", "1af4", false},
		{"NVIDIA H100", "030200", "10de", true}, {"NVIDIA RTX A6000", "030000", "10de", true},
		{"AMD MI250", "038000", "1002", true},
		{"AMD MI300", "120000", "1002", true}, {"Gaudi", "120000", "1da3", true}, {"Intel Max", "038000", "8086", true},
		{"a network card of NVIDIA", "020000", "10de", false}, {"an audio device of NVIDIA", "040300", "10de", false},
		{"nothing", "", "", false},
	} {
		if got := accelerator.Is(c.class, c.vendor); got != c.want {
			t.Errorf("%s (%s, %s): %t", c.name, c.class, c.vendor, got)
		}
	}
}
