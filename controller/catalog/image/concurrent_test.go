package image

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
)

func (r *rig) together(n int, fn func(i int) error) []error {
	r.t.Helper()
	errs := make([]error, n)
	g, _ := task.New(r.t.Context())
	for i := range n {
		g.Go("caller", func(context.Context) error {
			errs[i] = fn(i)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		r.t.Fatal(err)
	}
	return errs
}

func TestManyAddTheSame(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.AtOnce = 8 })
	raw := disk(1, diskSize)
	for _, err := range r.together(8, func(int) error {
		_, err := r.put(&pb.Image{ImageRef: "x"}, raw)
		return err
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	r.wantTidy()
}

func TestManyAddAnotherUnderOneName(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.AtOnce = 8 })
	won := 0
	for _, err := range r.together(8, func(i int) error {
		_, err := r.put(&pb.Image{ImageRef: "x"}, disk(uint64(i), diskSize))
		return err
	}) {
		if err == nil {
			won++
			continue
		}
		wantReason(t, err, "IMAGE_EXISTS")
	}
	if won != 1 {
		t.Errorf("%d have won", won)
	}
	r.wantTidy()
}

// TestAddAndRemoveAtOnce: few names and fewer files, so that every entry that comes meets one of the same file that
// goes.
func TestAddAndRemoveAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.AtOnce = 8 })
	files := [][]byte{disk(1, 2<<20), disk(2, 2<<20)}
	for _, err := range r.together(6, func(i int) error {
		dice := rand.New(rand.NewPCG(7, uint64(i)))
		for range 25 {
			n := dice.IntN(4)
			ref := fmt.Sprint("image-", n)
			var err error
			if dice.IntN(2) == 0 {
				_, err = r.put(&pb.Image{ImageRef: ref}, files[n%2])
			} else {
				_, err = r.Remove(t.Context(), ref, "tester")
			}
			if err != nil && !failure.HasReason(err, "IMAGE_NOT_FOUND") {
				return err
			}
		}
		return nil
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	r.wantTidy()
}

func TestOneAtATime(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.AtOnce = 1 })
	release, err := r.slot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Upload(ctx, &pb.Image{ImageRef: "x", Kind: "os"}, nil, "tester"); err == nil {
		t.Error("a second one was let in")
	}
	release()
	r.mustPut("x", disk(1, diskSize))
}
