package agent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/agenttest"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/inventory"
	"github.com/ingot-metal/ingot/internal/clock"
)

// mirrored is a simulated host with the sysfs of a mirror (Linux, Documentation/admin-guide/md.rst).
type mirrored struct {
	host.Host
	root string
}

func (m mirrored) Arrays() []inventory.Array { return inventory.Arrays(m.root) }

func (m mirrored) Inventory(ctx context.Context) (inventory.Document, error) {
	doc, err := m.Host.Inventory(ctx)
	doc.Arrays = m.Arrays()
	return doc, err
}

// TestALostDiskIsInReportAndInventory: both say it at once, though the next inventory would be a long time away.
func TestALostDiskIsInReportAndInventory(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{}, "")
	root := t.TempDir()
	md := filepath.Join(root, "sys/block/md127/md")
	write := func(name, text string) {
		t.Helper()
		// A file is renamed into its place, so that no reader sees it empty.
		err := errors.Join(os.MkdirAll(md, 0o755), os.WriteFile(filepath.Join(root, name), []byte(text), 0o600),
			os.Rename(filepath.Join(root, name), filepath.Join(md, name)))
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"level": "raid1", "raid_disks": "2", "degraded": "0", "array_state": "clean",
		"dev-sda": "", "dev-sdb": ""} {
		write(name, text)
	}
	simulated := r.cfg.Host
	r.cfg.Host = func(ctx context.Context, down func()) (host.Host, func() error, error) {
		h, end, err := simulated(ctx, down)
		return mirrored{h, root}, end, err
	}
	r.cfg.Clock, r.cfg.InventoryEvery = hastyClock{clock.Real(), 200}, 10000*time.Hour
	r.start()
	last := func() (fault, document string) {
		for _, e := range r.c.Events() {
			if e.GetReport().GetKind() == "raid" {
				fault = e.GetReport().GetFields()["fault"]
			}
			if e.GetInventory() != nil {
				document = string(e.GetInventory().GetDocument())
			}
		}
		return fault, document
	}
	wants := func(fault, part string) {
		t.Helper()
		r.c.Wait(fault+" "+part, func() bool {
			got, document := last()
			return got == fault && strings.Contains(document, part)
		})
	}
	wants("", `"missing":0,"active":true`)
	write("degraded", "1")
	wants("md127 (raid1) lacks 1 of 2 disks", `"missing":1,"active":true`)
	write("degraded", "0")
	wants("", `"missing":0,"active":true`)
}
