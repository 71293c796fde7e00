package program

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// steppedNow is what a steppable program's time.Now reads first; the line before it is the standard library's.
const (
	plainNow   = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	steppedNow = plainNow + "\tsec, nsec = stepped(sec, nsec)\n"
)

// stepFile is added to package time. The wall clock is off by the offset in the file that the environment names. The
// monotonic clock and CLOCK_BOOTTIME go on as they do when the clock of a real machine is set.
const stepFile = `package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

var stepBy = openStep()

func openStep() *int64 {
	path, found := syscall.Getenv("` + clockVariable + `")
	if !found {
		return nil
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic("open the file of the clock: " + err.Error())
	}
	b, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("map the file of the clock: " + err.Error())
	}
	_ = syscall.Close(fd)
	return (*int64)(unsafe.Pointer(&b[0]))
}

func stepped(sec int64, nsec int32) (int64, int32) {
	if stepBy == nil {
		return sec, nsec
	}
	n := int64(nsec) + atomic.LoadInt64(stepBy)
	sec += n / 1e9
	if n %= 1e9; n < 0 {
		n += 1e9
		sec--
	}
	return sec, int32(n)
}
`

// suspendFile is added to package clock. CLOCK_BOOTTIME is ahead by the second word of the same file, as after the
// machine was suspended for so long.
const suspendFile = `package clock

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

var suspendedFor = openSuspended()

func openSuspended() *int64 {
	path, found := os.LookupEnv("` + clockVariable + `")
	if !found {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		panic("open the file of the clock: " + err.Error())
	}
	defer f.Close()
	b, err := syscall.Mmap(int(f.Fd()), 0, 16, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("map the file of the clock: " + err.Error())
	}
	return (*int64)(unsafe.Pointer(&b[8]))
}

func suspended() time.Duration {
	if suspendedFor == nil {
		return 0
	}
	return time.Duration(atomic.LoadInt64(suspendedFor))
}
`

// The result of Boottime, before and after.
const (
	plainBoottime     = "return time.Duration(ts.Nano())\n"
	suspendedBoottime = "return time.Duration(ts.Nano()) + suspended()\n"
)

// clockVariable names the file by which a steppable program's clocks are off: nanoseconds of its wall clock and of
// CLOCK_BOOTTIME, 8 bytes each, in the byte order of the machine.
const clockVariable = "INGOT_LAB_CLOCK"

// Overlay writes the files for "go build -overlay DIR/overlay.json" to dir. It builds programs whose clocks can be set
// while they run, and that lack a protection where they are built with the tag "planted". Nothing of it is in the
// binaries that ship.
func Overlay(dir string) error {
	tree, err := goOutput("list", "-m", "-f", "{{.Dir}}", "github.com/ingot-metal/ingot")
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// The files there are no package of this module.
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module overlay\n"), 0o644); err != nil {
		return err
	}
	o := overlaid{dir: dir, replace: map[string]string{}}
	if err := o.changeAll(tree); err != nil {
		return err
	}
	return o.table()
}

// changeAll makes every file that stands in for one of Go's library or of the tree.
func (o overlaid) changeAll(tree string) error {
	library, err := goOutput("env", "GOROOT")
	if err != nil {
		return err
	}
	library = filepath.Join(library, "src", "time")
	clocks := filepath.Join(tree, "internal", "clock")
	return errors.Join(
		o.change(filepath.Join(library, "time.go"), plainNow, steppedNow),
		o.write(filepath.Join(library, "stepped.go"), stepFile),
		o.change(filepath.Join(clocks, "boottime_linux.go"), plainBoottime, suspendedBoottime),
		o.write(filepath.Join(clocks, "suspended.go"), suspendFile),
		o.plant(tree),
	)
}

// table writes which file stands in for which.
func (o overlaid) table() error {
	table, err := json.Marshal(map[string]map[string]string{"Replace": o.replace})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.dir, "overlay.json"), table, 0o644)
}

func goOutput(args ...string) (string, error) {
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		return "", fmt.Errorf("ask go where its files are: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// overlaid are files that stand in for others in a build.
type overlaid struct {
	dir     string
	replace map[string]string
}

// change puts one text in the place of another, in a file that may have been changed before.
func (o overlaid) change(path, from, to string) error {
	source, err := os.ReadFile(cmp.Or(o.replace[path], path))
	if err != nil {
		return err
	}
	if strings.Count(string(source), from) != 1 {
		return fmt.Errorf("%s is not the one that is known here", path)
	}
	return o.write(path, strings.Replace(string(source), from, to, 1))
}

func (o overlaid) write(path, content string) error {
	o.replace[path] = filepath.Join(o.dir, strings.ReplaceAll(path[1:], "/", "_"))
	return os.WriteFile(o.replace[path], []byte(content), 0o644)
}
