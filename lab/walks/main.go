// Command walks measures which files an operation passes through.
//
// It runs a controller and an agent in its own process, which must be built to count each statement. It clears the
// counters when the operation is requested, and reads them when the operation has ended. What an idle system executes
// is subtracted. `make walks` stores the figures in docs/reference/data/walks.json, of which docs/reference/walks.md is
// made.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/coverage"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

var out = flag.String("out", "", "file that receives the figures; empty prints them")

// main runs the measurement as a test, since the harness of whole systems belongs to one. A binary of `go test` cannot
// clear its counters.
func main() {
	all := func(string, string) (bool, error) { return true, nil }
	testing.Main(all, []testing.InternalTest{{Name: "Walks", F: measureWalks}}, nil, nil)
}

// File is a file on the way of an operation, and how many of its statements only the operation executed.
type File struct {
	Path       string `json:"path"`
	Statements int    `json:"statements"`
}

// Walk is the way of one operation, the files with most statements first.
type Walk struct {
	Operation string `json:"operation"`
	Executor  string `json:"executor"`
	Files     []File `json:"files"`
	// Transactions counts those that wrote, by their ids; those of an idle system in the same time are subtracted.
	Transactions float64 `json:"transactions"`
}

const (
	// idleTime is how long the idle system is measured: longer than the period of its slowest frequent task.
	idleTime = 35 * time.Second
	// repeats is how many operations the transactions are counted over.
	repeats = 10
)

func measureWalks(t *testing.T) {
	module := modulePath(t)
	var walks []Walk
	for executor, site := range map[string]bool{"host agent": false, "site agent": true} {
		url := testkit.Database(t)
		c := harness.New(t, harness.Options{DatabaseURL: url})
		m := c.NewMachine(t, harness.MachineOptions{Site: site})
		m.WaitConnected()
		rig.Maintenance(t, c.Client, m.ID)
		reboot := func(request string) *baremetalv1.Operation {
			op := rig.Reboot(t, c.Client, m.ID, request, rig.PatientTime)
			return c.Wait(op.GetOperationId(), rig.Soon)
		}
		// What only the first operation of a process executes is no part of the way.
		rig.Ended(t, reboot("first"), rig.Succeeded, "")
		m.WaitQuiet(rig.Soon)

		began := assigned(t, url)
		idle := measure(t, func() { <-time.After(idleTime) })
		idleRate := float64(assigned(t, url)-began) / idleTime.Seconds()
		busy := measure(t, func() { rig.Ended(t, reboot("measured"), rig.Succeeded, "") })

		began, start := assigned(t, url), time.Now()
		for i := range repeats {
			rig.Ended(t, reboot(fmt.Sprint("counted-", i)), rig.Succeeded, "")
		}
		written := float64(assigned(t, url)-began) - idleRate*time.Since(start).Seconds()
		walks = append(walks, Walk{"REBOOT", executor, onlyIn(busy, idle, module), written / repeats})
		c.Stop()
	}
	slices.SortFunc(walks, func(a, b Walk) int { return strings.Compare(a.Executor, b.Executor) })
	raw, err := json.MarshalIndent(walks, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if *out == "" {
		t.Logf("%s", raw)
		return
	}
	if err := os.WriteFile(*out, append(raw, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// assigned returns the next transaction id of the database: each transaction that writes takes one.
func assigned(t *testing.T, url string) int64 {
	t.Helper()
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(t.Context()) }()
	var next int64
	row := db.QueryRow(t.Context(), "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
	if err := row.Scan(&next); err != nil {
		t.Fatal(err)
	}
	return next
}

// measure returns the blocks that are executed while f runs, each with its number of statements.
func measure(t *testing.T, f func()) map[string]int {
	t.Helper()
	dir := t.TempDir()
	if err := coverage.ClearCounters(); err != nil {
		t.Fatalf("clear counters: %v; run `make walks`", err)
	}
	f()
	if err := coverage.WriteMetaDir(dir); err != nil {
		t.Fatal(err)
	}
	if err := coverage.WriteCountersDir(dir); err != nil {
		t.Fatal(err)
	}
	profile := filepath.Join(dir, "profile")
	if text, err := exec.Command("go", "tool", "covdata", "textfmt", "-i", dir, "-o", profile).
		CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	raw, err := os.ReadFile(profile)
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]int{}
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		// FILE:FROM,TO STATEMENTS COUNT
		cells := strings.Fields(lines.Text())
		if len(cells) != 3 || cells[2] == "0" {
			continue
		}
		if blocks[cells[0]], err = strconv.Atoi(cells[1]); err != nil {
			t.Fatal(err)
		}
	}
	return blocks
}

// onlyIn sums the statements of blocks that are in busy and not in idle, by file. Generated files are left out.
func onlyIn(busy, idle map[string]int, module string) []File {
	sum := map[string]int{}
	for block, n := range busy {
		if _, also := idle[block]; also {
			continue
		}
		file, _, _ := strings.Cut(strings.TrimPrefix(block, module+"/"), ":")
		if !strings.Contains(file, "/dbsqlc/") {
			sum[file] += n
		}
	}
	files := make([]File, 0, len(sum))
	for _, path := range slices.Sorted(maps.Keys(sum)) {
		files = append(files, File{path, sum[path]})
	}
	slices.SortStableFunc(files, func(a, b File) int { return b.Statements - a.Statements })
	return files
}

func modulePath(t *testing.T) string {
	t.Helper()
	text, err := exec.Command("go", "list", "-m").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
