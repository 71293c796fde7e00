package sim

import (
	"context"
	"errors"
	"testing"

	"github.com/ingot-metal/ingot/agent/disk/erase"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/disk"
)

func quiet(int, string) {}

func TestEraseLeavesNoImageAndTheSystemRunning(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	h := f.host()
	if _, err := h.Repave(t.Context(), effect.Cause{CommandID: "before"}, host.RepaveRequest{Digest: digestA},
		nil); err != nil {
		t.Fatal(err)
	}
	disks, err := h.DisksToErase("", nil)
	if err != nil || len(disks) != 1 {
		t.Fatalf("%v, %v", disks, err)
	}
	boot := f.bootID()
	got, err := h.EraseDisk(t.Context(), cause, disks[0].Ref(), erase.Auto, quiet)
	if err != nil || got.Method != erase.Overwrite || got.Verification == "" {
		t.Fatalf("%+v, %v", got, err)
	}
	if image, err := h.DiskImage(t.Context()); err != nil || image.Digest != "" || f.count() != 1 || f.bootID() != boot {
		t.Errorf("disk holds %+v, %v, %d effects", image, err, f.count())
	}
}

func TestEraseFails(t *testing.T) {
	t.Parallel()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for script, c := range map[string]struct {
		ctx     context.Context //nolint:containedctx // of one call
		err     error
		effects int
	}{
		"erase:fail-before":  {t.Context(), ErrInjected, 0},
		"erase:fail-after":   {t.Context(), ErrInjected, 1},
		"erase:crash-before": {t.Context(), ErrInjected, 0},
		"erase:late=1h":      {t.Context(), erase.ErrNotErased, 0},
		"erase:lie":          {t.Context(), nil, 0},
		"":                   {canceled, context.Canceled, 0},
	} {
		f := newFixture(t, script)
		if _, err := f.host().EraseDisk(c.ctx, cause, disk.Ref{ID: "id"}, erase.Auto, quiet); !errors.Is(err, c.err) {
			t.Errorf("%q: %v, want %v", script, err, c.err)
		}
		if f.count() != c.effects {
			t.Errorf("%q: %d effects", script, f.count())
		}
	}
}

func TestDisksToErase(t *testing.T) {
	t.Parallel()
	h := newFixture(t, "").host()
	var none *disk.NoUniqueMatch
	for _, c := range []struct {
		rule      string
		protected []string
		want      any
	}{
		{"serial=other", nil, &none}, {"", []string{"size>=1GiB"}, &none},
	} {
		if _, err := h.DisksToErase(c.rule, c.protected); !errors.As(err, c.want) {
			t.Errorf("%q, %q: %v", c.rule, c.protected, err)
		}
	}
	for _, c := range []struct{ rule, protected string }{{"nonsense", "size>=1GiB"}, {"", "nonsense"}} {
		if _, err := h.DisksToErase(c.rule, []string{c.protected}); !errors.Is(err, effect.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
