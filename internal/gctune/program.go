package gctune

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// giveBackProgram releases the pages of the program's own code. Most pages that a program touches at its start are
// never needed again. The others come from the page cache once more, at the price of a fault. Code is never written to,
// so nothing can be lost.
func giveBackProgram() error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("read own memory map: %w", err)
	}
	defer f.Close()
	list, err := codeOf(f, program)
	if err != nil {
		return err
	}
	for _, m := range list {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("give back code: %w", errno)
		}
	}
	return nil
}

type mapping struct{ start, end uintptr }

// codeOf reads which parts of a process's memory are code of that file, from its /proc/PID/maps (proc_pid_maps(5)).
func codeOf(maps io.Reader, file string) (list []mapping, err error) {
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[1] != "r-xp" || strings.Join(fields[5:], " ") != file {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		start, err := strconv.ParseUint(from, 16, 64)
		if err != nil {
			return nil, fmt.Errorf("memory map: %w", err)
		}
		end, err := strconv.ParseUint(to, 16, 64)
		if err != nil {
			return nil, fmt.Errorf("memory map: %w", err)
		}
		list = append(list, mapping{uintptr(start), uintptr(end)})
	}
	return list, lines.Err()
}
