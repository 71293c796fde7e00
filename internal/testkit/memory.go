package testkit

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What tests take at most of memory as their disk, and what must be left beside it: bytes.
const (
	memoryFree      = 4 << 30
	memoryAvailable = 10 << 30
)

// memory returns a directory whose files are in memory, or "" where there is too little of it. Making and dropping a
// thousand databases costs the file system of a disk more than all tests cost the processors. Files of a killed server
// or agent are found there, as on a disk. No test depends on the files that survive a loss of power.
func memory() string {
	const dir = "/dev/shm"
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil || fs.Type != unix.TMPFS_MAGIC || fs.Flags&unix.ST_NOEXEC != 0 {
		return ""
	}
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil || int64(fs.Bavail)*fs.Bsize < memoryFree || availableMemory(string(info)) < memoryAvailable {
		return ""
	}
	return dir
}

// availableMemory reads MemAvailable, in bytes, from the text of /proc/meminfo; 0 if it is not there.
func availableMemory(meminfo string) int64 {
	_, rest, _ := strings.Cut(meminfo, "MemAvailable:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}

// FilesInMemory has the temporary files of this process, and of those that it starts, be memory where there is enough
// of it. TestMain calls it first, and remove at the end. What processes left that did not come so far is removed too.
func FilesInMemory() (remove func(), err error) {
	dir := memory()
	if dir == "" {
		return func() {}, nil
	}
	removeLeft(dir)
	own := filepath.Join(dir, filesOf+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(own, 0o711); err != nil { // others may enter: Postgres has a user of its own
		return nil, err
	}
	return func() { _ = os.RemoveAll(own) }, os.Setenv("TMPDIR", own)
}

// filesOf begins the name of a directory of temporary files; the process that made it follows.
const filesOf = "ingot-files-"

// removeLeft removes from dir the files of processes that are no more, as far as they may be removed. One that had this
// process's number is no more either.
func removeLeft(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, filesOf+"*")) // the pattern is well formed
	for _, path := range left {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(path), filesOf))
		if err == nil && (pid == os.Getpid() || errors.Is(unix.Kill(pid, 0), unix.ESRCH)) {
			_ = os.RemoveAll(path) // another user's stay
		}
	}
}
