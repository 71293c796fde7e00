package httpboot

import (
	"fmt"
	"strings"

	"github.com/ingot-metal/ingot/agent/site/segment"
)

// target is what a machine boots: the assignment, or discovery.
type target struct {
	token string
	mode  segment.BootMode
	files Installer
}

// params are the kernel's parameters. They hold no secret: anybody on the segment can read them.
func (t target) params(base string) string {
	out := []string{"ingot.role=installer", "ingot.site=" + base, "ingot.token=" + t.token}
	if t.mode == segment.BootRescue {
		out = append(out, "ingot.mode=rescue")
	}
	return strings.Join(append(out, strings.Fields(t.files.Cmdline)...), " ")
}

// diskScript ends iPXE, and the firmware goes on to its next boot device. The status makes it a failure: after a
// program that ended well UEFI stops in its boot menu.
const diskScript = "#!ipxe\necho Ingot: no network boot for this machine, going on to its disk\nexit 1\n"

// askScript lets iPXE say for which architecture it was built, where that makes a difference.
func askScript(base string, mac segment.MAC) string {
	return fmt.Sprintf("#!ipxe\nchain --replace --autofree %s/boot/auto.ipxe?mac=%s&arch=${buildarch} || exit 1\n", base,
		mac)
}

// bootScript loads kernel and initramfs. After a failure it asks anew what to boot, since that may have changed, for
// as long as the server answers. netX is the interface that was used last (https://ipxe.org/cfg).
func bootScript(base string, t target) string {
	url := base + "/boot/" + t.token
	return fmt.Sprintf(`#!ipxe
echo Ingot: booting the installer of this machine
kernel %[1]s/%[2]s?arch=${buildarch} initrd=%[3]s %[4]s ingot.mac=${netX/mac} || goto failed
initrd %[1]s/%[3]s?arch=${buildarch} || goto failed
boot || goto failed
:failed
echo Ingot: failed, asking again
imgfree
sleep 3
chain --replace --autofree %[5]s/boot/auto.ipxe?mac=${netX/mac}&arch=${buildarch} || exit 1
`, url, fileKernel, fileInitrd, t.params(base), base)
}
