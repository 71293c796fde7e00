package main

import (
	"encoding/json"
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

// stepFile is added to package time. The wall clock is off by what the file says that the environment names; the monotonic
// clock and CLOCK_BOOTTIME go on as they do when the clock of a real machine is set.
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

// clockVariable names the file by which a steppable program's wall clock is off: nanoseconds, 8 bytes, in the byte order of
// the machine.
const clockVariable = "INGOT_LAB_CLOCK"

// overlay writes to dir what "go build -overlay DIR/overlay.json" needs to build programs whose wall clock can be stepped
// while they run: all of a program, with every library that it uses, and nothing of it is in the binaries that ship.
func overlay(dir string) error {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("ask go where its library is: %w", err)
	}
	library := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	source, err := os.ReadFile(filepath.Join(library, "time.go"))
	if err != nil {
		return err
	}
	if strings.Count(string(source), plainNow) != 1 {
		return fmt.Errorf("time.Now of %s is not the one that is known here", library)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text := strings.Replace(string(source), plainNow, steppedNow, 1)
	table, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(library, "time.go"):    filepath.Join(dir, "time.go"),
		filepath.Join(library, "stepped.go"): filepath.Join(dir, "stepped.go"),
	}})
	if err != nil {
		return err
	}
	for name, content := range map[string]string{"time.go": text, "stepped.go": stepFile, "overlay.json": string(table)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}
