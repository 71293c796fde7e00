package ext4

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/internal/imagelayout"
)

func TestStateDisk(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.img")
	files := map[string][]byte{imagelayout.TokenFile: []byte("secret"), "deep/er/file": []byte("x")}
	if err := StateDisk(path, files); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() != 64<<20 || info.Mode().Perm() != 0o600 {
		t.Errorf("disk: %+v, %v", info, err)
	}
	// debugfs comes with mke2fs.
	out, err := exec.Command("/usr/sbin/debugfs", "-R", "stat /"+imagelayout.TokenFile, path).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Mode:  0600") {
		t.Errorf("token on the disk: %s (%v)", out, err)
	}
	out, err = exec.Command("/usr/sbin/debugfs", "-R", "cat /deep/er/file", path).Output()
	if err != nil || string(out) != "x" {
		t.Errorf("file on the disk: %q (%v)", out, err)
	}
	if err := StateDisk(path, files); !errors.Is(err, ErrExists) {
		t.Errorf("second time: %v, want ErrExists", err)
	}
	if err := StateDisk(path+"2", map[string][]byte{"../out": nil}); err == nil {
		t.Error("a file outside of the disk was accepted")
	}
	if left, err := os.ReadDir(filepath.Dir(path)); len(left) != 1 || err != nil {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}
