package media_test

import (
	"bytes"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/site/media"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
	lab "github.com/ingot-metal/ingot/lab/bmc"
)

// TestEachShape: with each shape of BMC, its machine gets the image with the secret in it. Once the installer is
// certified nothing is attached, and the image is no longer served. One without virtual media reports that.
func TestEachShape(t *testing.T) {
	t.Parallel()
	for name, shape := range lab.Shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, shape)
			r.boots(true)
			err := r.insert()
			if shape.Media.None {
				if err == nil || len(r.service.Attached()) > 0 {
					t.Errorf("a BMC without virtual media: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			urls := r.service.Attached()
			image, err := os.ReadFile(r.chassis.Medium())
			if err != nil || len(urls) != 1 || !holdsSecret(image) {
				t.Fatalf("attached %v, an image of %d bytes, %v", urls, len(image), err)
			}
			if err := r.insert(); err != nil || len(r.service.Attached()) != 1 {
				t.Errorf("attached again: %v", err)
			}
			r.keeper.Used("m-1", "another token")
			r.keeper.Used("m-1", "token-1")
			r.empty("after its use")
			if !strings.HasPrefix(urls[0], "http://") {
				return
			}
			resp, err := http.Get(urls[0])
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusGone {
				t.Errorf("after its use the image is served: %s", resp.Status)
			}
		})
	}
}

// holdsSecret looks for the secret as the machine's file has it.
func holdsSecret(image []byte) bool {
	return bytes.Contains(image, []byte(`"secret":"YSBzZWNyZXQgb2YgdGhpcyBhc3NpZ25tZW50"`))
}

// TestEjectedAfterTheOperation: with the end of the assignment, although no installer was certified, and although the
// BMC refuses for a while.
func TestEjectedAfterTheOperation(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Shape{})
	r.boots(true)
	if err := r.insert(); err != nil {
		t.Fatal(err)
	}
	r.service.RefuseEjections(http.StatusServiceUnavailable)
	r.boots(false)
	testkit.Eventually(t, 20*time.Second, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.ContainsFunc(
			r.said,
			func(s string) bool { return strings.Contains(s, "op-1 the image is still attached") },
		)
	}, "nobody is told")
	r.service.RefuseEjections(0)
	r.empty("after the operation")
}

// TestKilled: an agent was killed with the image attached, or before the BMC answered. It ejects the image when it is
// back and the machine boots from disk.
func TestKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Shape{})
	r.boots(true)
	if err := r.insert(); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.start()
	r.boots(true)
	if err := r.insert(); err != nil || r.service.Ejections() != 0 {
		t.Errorf("%d ejections while it is wanted, %v", r.service.Ejections(), err)
	}
	r.stop()
	r.start()
	r.boots(false)
	r.empty("after a restart")
	testkit.Eventually(t, 20*time.Second, func() bool {
		left, err := os.ReadFile(r.path)
		return err == nil && !strings.Contains(string(left), "m-1")
	}, "still remembered")
}

// TestForgotten: an image of ours without a record, as after the site has moved to another box, is found and ejected.
func TestForgotten(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Shape{})
	r.boots(true)
	if err := r.insert(); err != nil {
		t.Fatal(err)
	}
	r.stop()
	if err := os.Remove(r.path); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.boots(false)
	r.empty("by an agent that does not know it")
}

// TestOthersAreLeftAlone: no foreign image is ejected, neither to attach ours nor in the search for ours.
func TestOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Shape{})
	for _, image := range []string{"http://10.9.9.9/rescue.iso", "", "http://10.0.0.1:8082/ingot-media/ingot-0123-4.iso"} {
		r.service.AttachForeign(image)
		r.boots(true)
		err := r.insert()
		if failure.From(err).Reason != "MEDIA_IN_USE" {
			t.Errorf("with %q attached: %v", image, err)
		}
		before := r.service.Counts().Requests
		r.stop()
		r.start() // it looks for ours
		r.boots(false)
		testkit.Eventually(t, 20*time.Second, func() bool { return r.service.Counts().Requests > before+2 }, "nobody looks")
		if n := r.service.Ejections(); n != 0 {
			t.Fatalf("%d ejections of %q", n, image)
		}
	}
}

// TestOurs: an image is a machine's by its URL, or by its name alone.
func TestOurs(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Shape{})
	r.boots(true)
	if err := r.insert(); err != nil {
		t.Fatal(err)
	}
	image := r.service.Attached()[0]
	name := image[strings.LastIndex(image, "/")+1:]
	for _, c := range []struct {
		site, machine, image string
		want                 bool
	}{
		{site, "m-1", image, true}, {site, "m-1", name, true}, {site, "m-2", image, false}, {"r43", "m-1", image, false},
		{site, "m-1", "http://10.0.0.1/rescue.iso", false}, {site, "m-1", "", false},
	} {
		if got := media.Ours(c.site, c.machine, c.image); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
