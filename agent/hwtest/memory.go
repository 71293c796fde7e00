package hwtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/task"
)

const (
	// piece of memory that is tested at once, in bytes.
	piece = 64 << 20
	// kept is the part of the free memory that is never taken, in bytes.
	kept = 256 << 20
	// mostFaults is how many faults of one piece are reported.
	mostFaults = 4
)

// patterns are written and read back, one after the other. The last two differ from word to word.
var patterns = []func(i uint64) uint64{
	func(uint64) uint64 { return 0 }, func(uint64) uint64 { return ^uint64(0) },
	func(uint64) uint64 { return 0x5555555555555555 }, func(uint64) uint64 { return 0xaaaaaaaaaaaaaaaa },
	func(i uint64) uint64 { return i }, scrambled,
}

// scrambled is a step of SplitMix64 (Steele, Lea, Flood, 2014).
func scrambled(i uint64) uint64 {
	z := (i + 1) * 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// memory writes patterns to free memory and reads them back. Modules whose errors were corrected meanwhile fail, too.
func memory(ctx context.Context, cfg Config, d time.Duration) []Result {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	before := correctedErrors(cfg.Root)
	size := testable(cfg.Root, cfg.Share)
	if size < piece {
		return []Result{{Test: Memory, Verdict: Skipped, Detail: "too little memory is free"}}
	}
	var mu sync.Mutex
	var out []Result
	var read, covered uint64
	began := time.Now()
	group, _ := task.New(ctx) // each task gets the context as its argument
	workers := min(runtime.NumCPU(), int(size/piece))
	each := size / uint64(workers) / piece
	for w := range workers {
		group.Go("memory "+strconv.Itoa(w), func(ctx context.Context) error {
			if err := aside(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				out = append(out, Result{Test: Memory, Verdict: Skipped, Detail: err.Error()})
				return nil
			}
			n, c, faults, err := testPieces(ctx, int(each))
			mu.Lock()
			defer mu.Unlock()
			read, covered = read+n, covered+c
			out = append(out, faults...)
			if err != nil {
				out = append(out, Result{Test: Memory, Verdict: Skipped, Detail: err.Error()})
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		out = append(out, Result{Test: Memory, Verdict: Failed, Detail: err.Error()})
	}
	out = append(out, grown(before, correctedErrors(cfg.Root))...)
	if read == 0 && len(out) > 0 {
		return out // no part could be tested
	}
	return append([]Result{{
		Test: Memory, Verdict: Passed, Figure: float64(read) / time.Since(began).Seconds() / 1e9, Unit: "GB/s",
		Detail: fmt.Sprintf("%d MiB of %d MiB", covered>>20, cfg.Doc.Memory.TotalBytes>>20),
	}}, out...)
}

// testPieces takes pieces and tests them until ctx ends. read counts what was compared, covered what was compared with
// every pattern.
func testPieces(ctx context.Context, n int) (read, covered uint64, faults []Result, err error) {
	var pieces [][]byte
	defer func() {
		for _, p := range pieces {
			err = errors.Join(err, unix.Munmap(p))
		}
	}()
	for range n {
		p, err := unix.Mmap(
			-1,
			0,
			piece,
			unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE,
		)
		if err != nil {
			return 0, 0, nil, fmt.Errorf("take memory: %w", err)
		}
		pieces = append(pieces, p)
		if ctx.Err() != nil {
			break
		}
	}
	for round := 0; ctx.Err() == nil; round++ {
		for _, p := range pieces {
			whole := true
			for _, pattern := range patterns {
				bad, done := testPiece(ctx, words(p), pattern)
				faults = append(faults, bad...)
				if whole = whole && done; !done {
					break
				}
				read += piece
			}
			if whole && round == 0 {
				covered += piece
			}
			if len(faults) >= mostFaults {
				return read, covered, faults[:mostFaults], nil
			}
		}
	}
	return read, covered, faults, nil
}

// words is the memory as words. mmap(2) returns whole pages, which are aligned.
func words(p []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(&p[0])), len(p)/8) //nolint:gosec // as above
}

// testPiece writes a pattern and reads it back, unless ctx ends before.
func testPiece(ctx context.Context, mem []uint64, pattern func(uint64) uint64) (bad []Result, done bool) {
	const look = 1 << 17 // words between two looks at ctx
	for from := 0; from < len(mem); from += look {
		if ctx.Err() != nil {
			return nil, false
		}
		for i := from; i < min(from+look, len(mem)); i++ {
			mem[i] = pattern(uint64(i))
		}
	}
	for from := 0; from < len(mem); from += look {
		if ctx.Err() != nil {
			return bad, false
		}
		for i := from; i < min(from+look, len(mem)) && len(bad) < mostFaults; i++ {
			if got, want := mem[i], pattern(uint64(i)); got != want {
				bad = append(bad, Result{Test: Memory, Part: physical(&mem[i]), Verdict: Failed,
					Detail: fmt.Sprintf("reads %016x, and %016x was written: bits %016x", got, want, got^want)})
			}
		}
	}
	return bad, true
}

// physical is where a word lies in the machine's memory (kernel, Documentation/admin-guide/mm/pagemap.rst). The kernel
// shows them to root only.
func physical(word *uint64) string {
	at := uint64(uintptr(unsafe.Pointer(word))) //nolint:gosec // only its number is wanted
	size := uint64(os.Getpagesize())
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // nothing was written to it
	entry := make([]byte, 8)
	if _, err := f.ReadAt(entry, int64(at/size*8)); err != nil {
		return ""
	}
	frame := binary.LittleEndian.Uint64(entry) & (1<<55 - 1)
	if frame == 0 {
		return ""
	}
	return fmt.Sprintf("address 0x%x", frame*size+at%size)
}

// testable is how much memory may be taken: a share of the memory that is free to this process.
func testable(root string, share float64) uint64 {
	free := meminfo(root, "MemAvailable")
	if room, limited := cgroupRoom(root); limited {
		free = min(free, room)
	}
	if free <= kept {
		return 0
	}
	return min(uint64(float64(free)*share), free-kept) / piece * piece
}

func meminfo(root, name string) uint64 {
	text, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return 0
	}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		if fields := strings.Fields(s.Text()); len(fields) >= 2 && fields[0] == name+":" {
			kib, err := strconv.ParseUint(fields[1], 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}

// cgroupRoom is what the control groups of this process leave it (kernel, Documentation/admin-guide/cgroup-v2.rst).
func cgroupRoom(root string) (room uint64, limited bool) {
	text, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return 0, false
	}
	_, group, ok := strings.Cut(strings.TrimSpace(string(text)), "0::")
	if !ok {
		return 0, false
	}
	for dir := group; ; dir = filepath.Dir(dir) {
		of := filepath.Join(root, "sys/fs/cgroup", dir)
		most, ok := number(filepath.Join(of, "memory.max"))
		if used, known := number(filepath.Join(of, "memory.current")); ok && known {
			if left := most - min(most, used); !limited || left < room {
				room, limited = left, true
			}
		}
		if dir == "/" || dir == "." {
			return room, limited
		}
	}
}

func number(path string) (uint64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// correctedErrors counts the errors of memory modules by their labels (kernel, Documentation/admin-guide/RAS/main.rst).
func correctedErrors(root string) map[string]uint64 {
	out := map[string]uint64{}
	// The pattern is constant and well formed, which is all that Glob complains about.
	dirs, _ := filepath.Glob(filepath.Join(root, "sys/devices/system/edac/mc/mc*/dimm*"))
	for _, dir := range dirs {
		label, err := os.ReadFile(filepath.Join(dir, "dimm_label"))
		if err != nil {
			continue
		}
		// A count that the driver does not have is none.
		ce, _ := number(filepath.Join(dir, "dimm_ce_count"))
		ue, _ := number(filepath.Join(dir, "dimm_ue_count"))
		out[strings.TrimSpace(string(label))+"\x00"+filepath.Base(filepath.Dir(dir))+"/"+filepath.Base(dir)] = ce + ue
	}
	return out
}

// grown are the modules that have had errors since.
func grown(before, after map[string]uint64) []Result {
	var out []Result
	for key, n := range after {
		if n <= before[key] {
			continue
		}
		label, place, _ := strings.Cut(key, "\x00") // correctedErrors makes the keys
		if label == "" {
			label = place
		}
		out = append(out, Result{Test: Memory, Part: label, Verdict: Failed,
			Detail: fmt.Sprintf("%d errors were corrected or seen during the test", n-before[key])})
	}
	slices.SortFunc(out, func(a, b Result) int { return strings.Compare(a.Part, b.Part) })
	return out
}
