package guest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/ingot-metal/ingot/agent/pid1"
)

// Image is the name of the image on the web server of a machine that is installed by hand.
const Image = "image.raw.zst"

// The lines of a machine that is installed by hand on its console.
const (
	Up      = "BY HAND: up"
	Written = "BY HAND: written"
	Failed  = "BY HAND: failed: "
)

// Run measures writes where the state disk has a job, and installs the machine by hand where it has none. The machine
// powers off when Run returns.
func Run(ctx context.Context, sys *pid1.System) error {
	if _, err := os.Stat(filepath.Join(sys.StateDir(), JobFile)); err == nil {
		// The console is all that comes out of the machine, so that errors go there.
		if err := measureWrites(ctx, sys.StateDir()); err != nil {
			say(Result{Way: "the machine", Error: err.Error()})
		}
		return nil
	}
	fmt.Println(Up)
	if err := install(ctx, sys.Installer().Site+"/"+Image); err != nil {
		fmt.Println(Failed + err.Error())
		return nil
	}
	fmt.Println(Written)
	if err := exec.CommandContext(ctx, "/usr/bin/busybox", "reboot", "-f").Run(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// install is the pipe that one types.
func install(ctx context.Context, url string) error {
	if err := makeExecutable(); err != nil {
		return err
	}
	_, err := shell(ctx, "/usr/bin/busybox wget -q -O - "+url+" | "+unpackTo("/dev/vda"))
	return err
}

// unpackTo is the end of the pipe. Direct I/O and the flush make dd write as the installer does.
func unpackTo(disk string) string {
	return "/usr/bin/zstd -dcq | /usr/bin/dd of=" + disk + " bs=4M iflag=fullblock oflag=direct conv=fsync"
}

// shell runs a pipe, and returns its output.
func shell(ctx context.Context, pipe string) (string, error) {
	out, err := exec.CommandContext(ctx, "/usr/bin/busybox", "sh", "-c", "set -o pipefail; "+pipe).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", pipe, err, out)
	}
	return string(out), nil
}
