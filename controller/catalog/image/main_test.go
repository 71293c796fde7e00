package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/catalog/blob"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// Where the child process of the crash tests works.
const (
	childDir = "INGOT_TEST_IMAGES_DIR"
	childURL = "INGOT_TEST_IMAGES_DATABASE"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := ingest(dir, os.Getenv(childURL)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testkit.Main(m)
}

// ingest is the child: it adds an image and may die in the middle.
func ingest(dir, url string) error {
	if err := failpoint.FromEnv(); err != nil {
		return err
	}
	ctx := context.Background()
	s, err := store.New(ctx, store.Config{URL: url})
	if err != nil {
		return err
	}
	defer s.Close()
	blobs, err := blob.Open(blob.Config{Path: dir})
	if err != nil {
		return err
	}
	file, err := os.ReadFile(filepath.Join(dir, "source"))
	if err != nil {
		return err
	}
	im := &pb.Image{ImageRef: "crashed", Kind: "os", Arch: "amd64"}
	_, err = New(Config{Blobs: blobs, Store: s.Catalog}).Upload(ctx, im, bytes.NewReader(file), "tester")
	return err
}

// TestKilledInTheMiddle kills the controller everywhere on the way of an image. What the next start finds is the whole
// image or nothing, and the same call then makes it whole.
func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	raw := disk(3, diskSize)
	qcow := qemuImg(t, raw)
	for _, point := range []string{
		"blob.at-write=kill@1", "blob.at-write=kill@7", "blob.at-write=kill@30", "image.before-entry=kill",
		"blob.before-place=kill", "blob.after-place=kill",
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.mustPut("there-before", disk(4, diskSize))
			if err := os.WriteFile(filepath.Join(r.dir, "source"), qcow, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), childDir+"="+r.dir, childURL+"="+r.store.DB.Pool().Config().ConnString(),
				failpoint.EnvVar+"="+point)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("child: %v, want SIGKILL\n%s", err, out)
			}
			// The next start.
			if r.blobs, err = blob.Open(blob.Config{Path: r.dir}); err != nil {
				t.Fatal(err)
			}
			r.Catalogue = New(Config{Blobs: r.blobs, Store: r.store.Catalog, Logger: testkit.Logger(t)})
			if err := r.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.wantTidy()
			if im := r.mustPut("crashed", qcow); !bytes.Equal(unpackedBytes(t, r.stored(im.GetSha256File())), raw) {
				t.Error("another image")
			}
			r.wantTidy()
		})
	}
}
