package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/hosttest"
)

// A run sets up a host with a systemd-networkd of its own: a random network of ours and of others, a random order, and
// a random fault during the order. It must end in the new state, proven, or in the old one, equal in files and kernel,
// and the host must be reachable. The comparison uses the output of ip(8) and nft(8), and not the code under test.
//
// Every tenth run is one with a reboot: the whole machine is reset in the middle of the change, without a sync, and
// starts again with what its disk holds. The command of ingot-rollback.service runs before networkd.
const (
	runsVariable  = "INGOT_NETWORK_RUNS"  // FIRST:COUNT, of seeds
	doneVariable  = "INGOT_NETWORK_DONE"  // a file of the seeds that are done, to go on after an interruption
	seedsVariable = "INGOT_NETWORK_SEEDS" // in the machine: those to run
	seedVariable  = "INGOT_NETWORK_SEED"  // in a namespace: the one to run
	runsAtOnce    = 3
	runsPerVM     = 24
	rebootsPerVM  = 10
	rebootEvery   = 10
	changeLimit   = 15 * time.Second
	// runLimit is for one run on a machine that does much else.
	runLimit = 10 * time.Minute
)

// TestNetworkRunsHere makes runs without bonds and VLANs on this machine's own kernel, which takes a second each.
// Others than the first 15 are asked for with INGOT_NETWORK_RUNS.
func TestNetworkRunsHere(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: it makes network and mount namespaces and runs a systemd-networkd in them")
	}
	first, count := uint64(1), uint64(15)
	if text := os.Getenv(runsVariable); text != "" {
		_, err := fmt.Sscanf(text, "%d:%d", &first, &count)
		hosttest.Must(t, err)
	}
	var seeds []uint64
	for seed := first; seed < first+count; seed++ {
		if seed%rebootEvery != 0 {
			seeds = append(seeds, seed)
		}
	}
	together(t, seeds, runsAtOnce)
}

// shortRuns is what there is time for beside all other tests: a run, and one with a reboot.
var shortRuns = []uint64{7, 20}

// TestNetworkRuns makes the runs in virtual machines, because few kernels that containers share have bonds and VLANs.
func TestNetworkRuns(t *testing.T) {
	switch {
	case os.Getenv(seedVariable) != "":
		seed, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64)
		hosttest.Must(t, err)
		networkRun(t, seed)
	case os.Getenv(hosttest.VMVariable) == "1":
		runAll(t, parseSeeds(t, os.Getenv(seedsVariable)))
	default:
		t.Parallel()
		text := os.Getenv(runsVariable)
		if text == "" {
			runInVM(t, shortRuns, &doneSeeds{})
			return
		}
		var first, count uint64
		_, err := fmt.Sscanf(text, "%d:%d", &first, &count)
		hosttest.Must(t, err)
		done := openDone(t, os.Getenv(doneVariable))
		for _, seeds := range machines(first, count, done) {
			runInVM(t, seeds, done)
		}
		t.Logf("%d of %d runs have ended well", done.among(first, count), count)
	}
}

func parseSeeds(t *testing.T, text string) []uint64 {
	t.Helper()
	var out []uint64
	for s := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(s, 10, 64)
		hosttest.Must(t, err)
		out = append(out, n)
	}
	return out
}

// machines shares the seeds that are not done among machines: those with a reboot apart, since that takes all down at
// once.
func machines(first, count uint64, done *doneSeeds) [][]uint64 {
	var plain, reboot []uint64
	for seed := first; seed < first+count; seed++ {
		switch {
		case done.seeds[seed]:
		case seed%rebootEvery == 0:
			reboot = append(reboot, seed)
		default:
			plain = append(plain, seed)
		}
	}
	return slices.Concat(slices.Collect(slices.Chunk(reboot, rebootsPerVM)),
		slices.Collect(slices.Chunk(plain, runsPerVM)))
}

// doneSeeds is a file with the seeds of runs that have ended well, one a line.
type doneSeeds struct {
	path  string
	seeds map[uint64]bool
}

func openDone(t *testing.T, path string) *doneSeeds {
	t.Helper()
	d := &doneSeeds{path: path, seeds: map[uint64]bool{}}
	b, err := os.ReadFile(path)
	if path == "" || os.IsNotExist(err) {
		return d
	}
	hosttest.Must(t, err)
	for line := range strings.Lines(string(b)) {
		seed, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
		hosttest.Must(t, err)
		d.seeds[seed] = true
	}
	return d
}

func (d *doneSeeds) among(first, count uint64) int {
	n := 0
	for seed := range d.seeds {
		if seed >= first && seed < first+count {
			n++
		}
	}
	return n
}

func (d *doneSeeds) add(t *testing.T, seed uint64) {
	t.Helper()
	if d.seeds == nil {
		return
	}
	d.seeds[seed] = true
	if d.path == "" {
		return
	}
	f, err := os.OpenFile(d.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Error(err)
		return
	}
	_, err = fmt.Fprintln(f, seed)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Error(err)
	}
}

var runEnded = regexp.MustCompile(`^RUN (\d+) (ok|FAILED)`)

// runInVM makes runs in one machine.
func runInVM(t *testing.T, seeds []uint64, done *doneSeeds) {
	t.Helper()
	var texts []string
	for _, s := range seeds {
		texts = append(texts, strconv.FormatUint(s, 10))
	}
	var disk []string
	if slices.ContainsFunc(seeds, func(s uint64) bool { return s%rebootEvery == 0 }) {
		path := filepath.Join(t.TempDir(), "disk")
		hosttest.Must(t, os.WriteFile(path, nil, 0o600))
		hosttest.Must(t, os.Truncate(path, 256<<20))
		out, err := exec.CommandContext(t.Context(), "/sbin/mke2fs", "-q", "-t", "ext4", path).CombinedOutput()
		if err != nil {
			t.Fatalf("make a file system: %v\n%s", err, out)
		}
		disk = []string{"-drive", "if=virtio,format=raw,file=" + path}
	}
	ended := 0
	out, err := hosttest.RunVM(t, hosttest.VMRun{
		Env:   fmt.Sprintf("%s=%s", seedsVariable, strings.Join(texts, ",")),
		Limit: time.Duration(len(seeds))*time.Minute + hosttest.VMTime, More: disk,
		Line: func(line string) {
			m := runEnded.FindStringSubmatch(line)
			if m == nil {
				return
			}
			ended++
			t.Log(line)
			if seed, err := strconv.ParseUint(m[1], 10, 64); err == nil && m[2] == "ok" {
				done.add(t, seed)
			}
		},
	})
	if err != nil || ended != len(seeds) || strings.Count(out, "TEST ENDED 0") != 1 {
		t.Errorf("runs %v: %v, %d ended\n%s", seeds, err, ended, out)
	}
}

const (
	diskOfRuns = "/disk"
	// resetNote is on the disk once the machine is about to be reset.
	resetNote = diskOfRuns + "/reset"
	goFile    = "/tmp/go"
)

func rebooted() bool {
	_, err := os.Stat(resetNote)
	return err == nil
}

// runAll makes each run in namespaces of its own. Those with a reboot come last, and go on in the next boot.
func runAll(t *testing.T, seeds []uint64) {
	t.Helper()
	var plain, reboot []uint64
	for _, s := range seeds {
		if s%rebootEvery == 0 {
			reboot = append(reboot, s)
		} else {
			plain = append(plain, s)
		}
	}
	if rebooted() {
		together(t, reboot, runsAtOnce)
		return
	}
	together(t, plain, runsAtOnce)
	if len(reboot) > 0 {
		untilReset(t, reboot)
	}
}

// together runs so many at once, and reports how each ended.
func together(t *testing.T, seeds []uint64, atOnce int) {
	t.Helper()
	next := make(chan uint64)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for seed := range next {
				out, err := inNamespaces(t, seed).CombinedOutput()
				story := strings.Join(regexp.MustCompile(`(?m)STORY (.*)$`).FindAllString(string(out), -1), "; ")
				end := "ok"
				if err != nil {
					end = "FAILED"
					t.Errorf("run %d: %v\n%s", seed, err, out)
					fmt.Printf("run %d: %v\n%s\n", seed, err, out)
				}
				fmt.Printf("\nRUN %d %s %s\n", seed, end, strings.ReplaceAll(story, "STORY ", ""))
			}
		})
	}
	for _, seed := range seeds {
		next <- seed
	}
	close(next)
	wg.Wait()
}

func inNamespaces(t *testing.T, seed uint64) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNetworkRuns$", "-test.v", "-test.timeout="+
		runLimit.String())
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", seedVariable, seed), hosttest.NetworkdVariable+"=1")
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS,
		Pdeathsig: unix.SIGKILL}
	return cmd
}

// untilReset begins all runs, and resets the machine in the middle of what they do then. It does not return.
func untilReset(t *testing.T, seeds []uint64) {
	t.Helper()
	var said [64]bytes.Buffer
	for i, seed := range seeds {
		cmd := inNamespaces(t, seed)
		cmd.Stdout, cmd.Stderr = &said[i], &said[i]
		hosttest.Must(t, cmd.Start())
	}
	ready := func() int {
		files, err := filepath.Glob("/tmp/ready.*")
		hosttest.Must(t, err)
		return len(files)
	}
	for deadline := time.Now().Add(runLimit); ready() < len(seeds); <-time.After(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			for i := range seeds {
				t.Logf("run %d:\n%s", seeds[i], said[i].String())
			}
			t.Fatal("not all runs could begin")
		}
	}
	guarded := func() int {
		files, err := filepath.Glob(diskOfRuns + "/*/etc/ingot/network/guard.json")
		hosttest.Must(t, err)
		return len(files)
	}
	hosttest.WriteFile(t, resetNote, "")
	unix.Sync() // what comes before the change; of the change only the data that it has synced itself must be there
	hosttest.WriteFile(t, goFile, "")
	for deadline := time.Now().Add(rigTime); guarded() < (len(seeds)+1)/2 && time.Now().Before(deadline); {
		<-time.After(100 * time.Millisecond)
	}
	<-time.After(time.Duration(rand.New(rand.NewPCG(seeds[0], 2)).IntN(8000)) * time.Millisecond)
	hosttest.Must(t, os.WriteFile("/proc/sysrq-trigger", []byte("b"), 0o200))
	<-context.Background().Done()
}

// TestMachinesOfRuns: every seed is run once, those with a reboot apart, and a run that is done is not repeated.
func TestMachinesOfRuns(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "done")
	first := openDone(t, path)
	first.add(t, 3)
	first.add(t, 20)
	seen := map[uint64]int{}
	for _, seeds := range machines(1, 500, openDone(t, path)) {
		for _, s := range seeds {
			seen[s]++
			if (s%rebootEvery == 0) != (seeds[0]%rebootEvery == 0) {
				t.Errorf("%v are in one machine", seeds)
			}
		}
	}
	if len(seen) != 498 || seen[3]+seen[20] > 0 || seen[1] != 1 || seen[500] != 1 {
		t.Errorf("%d seeds are run, %d of 500", len(seen), seen[500])
	}
}
