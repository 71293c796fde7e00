package hwtest

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/inventory"
)

// tree writes files below a root of the test's own.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// A bit that does not hold what was written is found, whatever the pattern.
func TestABadBitIsFound(t *testing.T) {
	t.Parallel()
	mem := make([]uint64, 1<<18)
	for i, pattern := range patterns {
		if bad, done := testPiece(t.Context(), mem, pattern); len(bad) > 0 || !done {
			t.Errorf("pattern %d: %+v, %v", i, bad, done)
		}
		const stuck = 200_001
		flipping := func(n uint64) uint64 { return pattern(n) }
		mem[stuck] = 0
		writes := 0
		bad, _ := testPiece(t.Context(), mem, func(n uint64) uint64 {
			if n == stuck {
				if writes++; writes == 1 {
					return flipping(n) ^ 1<<17 // what the module keeps instead
				}
			}
			return flipping(n)
		})
		if len(bad) != 1 || bad[0].Verdict != Failed || !strings.Contains(bad[0].Detail, "bits 0000000000020000") {
			t.Errorf("pattern %d: %+v", i, bad)
		}
	}
}

func TestMemoryKeepsItsDistance(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		want  uint64
	}{
		"half of what is free": {map[string]string{"proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 4194304 kB\n"}, 2 << 30},
		"little is free":       {map[string]string{"proc/meminfo": "MemAvailable: 262144 kB\n"}, 0},
		"a control group": {map[string]string{"proc/meminfo": "MemAvailable: 4194304 kB\n", "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "1073741824\n",
			"sys/fs/cgroup/a/memory.current": "536870912\n"}, 256 << 20},
	} {
		if got := testable(tree(t, c.files), 0.5); got != c.want {
			t.Errorf("%s: %d MiB, not %d", name, got>>20, c.want>>20)
		}
	}
}

// Errors that a module has corrected during the test name its slot.
func TestCorrectedErrorsNameTheSlot(t *testing.T) {
	t.Parallel()
	const dir = "sys/devices/system/edac/mc/mc0/dimm3/"
	root := tree(
		t,
		map[string]string{dir + "dimm_label": "DIMM_B2\n", dir + "dimm_ce_count": "7\n", dir + "dimm_ue_count": "0\n"},
	)
	before := correctedErrors(root)
	if got := grown(before, correctedErrors(root)); len(got) != 0 {
		t.Errorf("old errors count: %+v", got)
	}
	if err := os.WriteFile(filepath.Join(root, dir+"dimm_ce_count"), []byte("12\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	got := grown(before, correctedErrors(root))
	if len(got) != 1 || got[0].Part != "DIMM_B2" || got[0].Verdict != Failed ||
		!strings.HasPrefix(got[0].Detail, "5 errors") {
		t.Errorf("%+v", got)
	}
}

// A processor computes what Python's hashlib computes.
func TestChain(t *testing.T) {
	t.Parallel()
	if got := chain(); got != answer {
		t.Error(got)
	}
	r := processors(t.Context(), 200*time.Millisecond)
	if len(r) != 1 || r[0].Verdict != Passed || r[0].Figure <= 0 {
		t.Errorf("%+v", r)
	}
}

func TestDisksAreRead(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"dev/sda": strings.Repeat("x", 4<<20), "dev/short": strings.Repeat("x", 1<<20)})
	doc := inventory.Document{Disks: []inventory.Disk{
		{Name: "sda", Serial: "S1", Model: "M", SizeBytes: 4 << 20}, {Name: "sdx", Serial: "S9", SizeBytes: 4 << 20},
		{Name: "short", Serial: "S2", Model: "M", SizeBytes: 64 << 20},
	}}
	all := Run(t.Context(), Config{Root: root, Doc: doc, Tests: []string{Disk}, For: 400 * time.Millisecond,
		DiskBytes: 1 << 30,
		SMART: func(device string) (Health, error) {
			return Health{Failing: filepath.Base(device) == "sda", Why: "the spare is used up", PercentUsed: 97}, nil
		}})
	faults := Faults(all)
	for _, want := range []string{"disk S1: SMART: the spare is used up", "disk S2: read at byte "} {
		if !strings.Contains(faults, want) {
			t.Errorf("no %q in %q", want, faults)
		}
	}
	figures := map[string]float64{}
	for _, r := range all {
		if r.Part == "S1" {
			figures[r.Unit] = r.Figure
		}
		if r.Part == "S9" && r.Verdict != Skipped && r.Unit != "% used" {
			t.Errorf("a disk that is not there: %+v", r)
		}
	}
	if figures["MB/s"] <= 0 || figures["IOPS"] <= 0 || figures["% used"] != 97 {
		t.Errorf("figures %v", figures)
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	up := inventory.NIC{Name: "eth0", MAC: "02:00:00:00:00:01", LinkUp: true, SpeedMbps: 25000}
	for name, c := range map[string]struct {
		nic           inventory.NIC
		before, after map[string]uint64
		want          Result
	}{
		"link": {up, nil, nil, Result{Verdict: Passed, Figure: 25000}},
		"old errors": {up, map[string]uint64{"rx_errors": 5}, map[string]uint64{"rx_errors": 5},
			Result{Verdict: Passed, Figure: 25000}},
		"a bad cable": {up, map[string]uint64{"rx_crc_errors": 5}, map[string]uint64{"rx_crc_errors": 9},
			Result{Verdict: Failed, Figure: 25000, Detail: "rx_crc_errors grew by 4"}},
		"no link": {inventory.NIC{Name: "eth0", SpeedMbps: 1000}, nil, nil, Result{Verdict: Skipped, Detail: "no link"}},
	} {
		got := judgeNIC(c.nic, c.before, c.after)
		if got.Verdict != c.want.Verdict || got.Figure != c.want.Figure ||
			c.want.Detail != "" && got.Detail != c.want.Detail {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The tests share the time, and a cancelled test ends.
func TestTheTimeIsBounded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	Run(ctx, Config{Root: t.TempDir(), Tests: []string{CPU, NIC}, For: time.Minute})
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("it took %v", d)
	}
}

// TestNVMeHealth reads the log page SMART / Health Information (NVM Express Base Specification 2.0, figure 207).
func TestNVMeHealth(t *testing.T) {
	t.Parallel()
	page := make([]byte, 512)
	page[3], page[4], page[5] = 100, 10, 3
	if h := NVMeHealth(page); h.Failing || h.PercentUsed != 3 {
		t.Errorf("a new disk: %+v", h)
	}
	page[0] = 1 << 2 // reliability is degraded
	binary.LittleEndian.PutUint64(page[160:], 12)
	if h := NVMeHealth(
		page,
	); !h.Failing || !strings.Contains(h.Why, "reliability") ||
		!strings.Contains(h.Why, "12 media errors") {
		t.Errorf("a worn one: %+v", h)
	}
	page[0], page[3] = 0, 9
	if h := NVMeHealth(page); !h.Failing || !strings.Contains(h.Why, "spare") {
		t.Errorf("without spare: %+v", h)
	}
	for lba, want := range map[uint64]bool{0xc24f00: false, 0x2cf400: true} {
		if h, err := ATAHealth(lba); err != nil || h.Failing != want {
			t.Errorf("%x: %+v, %v", lba, h, err)
		}
	}
	if _, err := ATAHealth(0); err == nil {
		t.Error("a drive that does not answer the question is healthy")
	}
}
