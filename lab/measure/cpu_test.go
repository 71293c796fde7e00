package measure

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"
)

func TestProcessorTimeOfThisProcess(t *testing.T) {
	t.Parallel()
	own, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	family, err := FamilyCPU(os.Getpid())
	if err != nil || family < own {
		t.Errorf("%v of the family, %v of the process, %v", family, own, err)
	}
	if _, err := CPU(1 << 30); err == nil {
		t.Error("a process that does not exist has used time")
	}
}

func TestChildren(t *testing.T) {
	t.Parallel()
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = child.Process.Kill(), child.Wait() }() // it may have ended
	if list, err := Children(os.Getpid()); err != nil || !slices.Contains(list, child.Process.Pid) {
		t.Errorf("%d is not among %v, %v", child.Process.Pid, list, err)
	}
	if Stopped(child.Process.Pid) {
		t.Error("it is stopped before it is")
	}
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); !Stopped(child.Process.Pid); {
		if time.Now().After(end) {
			t.Fatal("it is not stopped")
		}
	}
}
