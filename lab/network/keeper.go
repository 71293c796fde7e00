package network

import (
	"context"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/task"
)

// keeper is a thread that goes into a namespace and works there. It must not end: a process started with Pdeathsig dies
// with the thread that started it, which may have been this one earlier. So it returns home in the end, or stays parked
// where it may not return. The root of a user namespace may not enter the host's network.
type keeper chan job

type job struct {
	fn   func() error
	done chan error
}

func newKeeper() keeper {
	k := make(keeper)
	task.Background("network namespace", k.keep)
	return k
}

func (k keeper) keep() {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	for j := range k {
		if err != nil {
			j.done <- err
			continue
		}
		j.done <- task.Run(context.Background(), "network namespace", func(context.Context) error { return j.fn() })
	}
	if err != nil || unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) != nil {
		select {}
	}
	_ = home.Close() // only read
	runtime.UnlockOSThread()
}

func (k keeper) do(fn func() error) error {
	j := job{fn, make(chan error, 1)}
	k <- j
	return <-j.done
}

// leave may be called once, and nothing after it.
func (k keeper) leave() {
	close(k)
}
