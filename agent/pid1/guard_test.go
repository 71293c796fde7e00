package pid1

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestGuardDue(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	boot := filepath.Join(dir, "boot_id")
	if err := os.WriteFile(boot, []byte("b-1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	deadline := 90 * time.Second
	for name, c := range map[string]struct {
		record string
		since  time.Duration
		want   bool
	}{
		"before its deadline": {`{"state":"pending","boot_id":"b-1","deadline_boottime_ns":90000000000}`, deadline,
			false},
		"the agent had its time": {`{"state":"pending","boot_id":"b-1","deadline_boottime_ns":90000000000}`, deadline +
			guardGrace, true},
		"another boot":              {`{"state":"pending","boot_id":"b-0","deadline_boottime_ns":90000000000}`, 0, true},
		"committed":                 {`{"state":"committed","boot_id":"b-0"}`, time.Hour, false},
		"rolled back":               {`{"state":"rolled_back","boot_id":"b-0"}`, time.Hour, false},
		"no record":                 {"", time.Hour, false},
		"half of a record is none":  {`{"state":"pend`, time.Hour, false},
		"fields that others added":  {`{"state":"pending","boot_id":"b-0","files":{}}`, 0, true},
		"pending without any times": {`{"state":"pending"}`, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "guard.json")
			if c.record != "" {
				if err := os.WriteFile(file, []byte(c.record), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := guardDue(file, boot, c.since); got != c.want {
				t.Errorf("due: %t, want %t", got, c.want)
			}
		})
	}
}
