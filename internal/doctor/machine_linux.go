package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Space checks the free bytes of a directory's file system, or of that of the nearest directory above it. Less than
// least is a fault, less than enough a warning.
func Space(dir string, least, enough uint64, remedy string) Finding {
	for dir != "/" {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return Fault("space", dir+": "+err.Error(), remedy)
	}
	free := fs.Bavail * uint64(fs.Bsize) //nolint:gosec // a block has a positive size
	f := Well("space", fmt.Sprintf("%d MiB free in %s", free>>20, dir))
	if free < enough {
		f.Level, f.Remedy = Warn, remedy
	}
	if free < least {
		f.Level = Fail
	}
	return f
}

// Port opens a port for a moment, to see that no other program has it. The network is tcp, tcp4 or udp4.
func Port(ctx context.Context, network, address string) Finding {
	what := network[:3] + " " + address
	var listen net.ListenConfig
	var err error
	if network == "udp4" {
		var conn net.PacketConn
		if conn, err = listen.ListenPacket(ctx, network, address); err == nil {
			err = conn.Close()
		}
	} else {
		var l net.Listener
		if l, err = listen.Listen(ctx, network, address); err == nil {
			err = l.Close()
		}
	}
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		_, port, _ := net.SplitHostPort(address) // it has just been used
		return Fault("port", "another program has "+what, "ss -lnp 'sport = :"+port+
			"' names it; systemctl disable --now its service")
	case errors.Is(err, os.ErrPermission):
		return Fault("port", what+": "+err.Error(), "run doctor as root")
	case err != nil:
		return Fault("port", what+": "+err.Error(), "ip address; then correct the address")
	}
	return Well("port", what+" is free")
}

// Synchronized asks the kernel whether a time service sets this machine's clock (adjtimex(2), STA_UNSYNC).
func Synchronized() Finding {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return Warning("time", err.Error(), "timedatectl")
	}
	return synchronized(state, t.Status)
}

// From linux/timex.h: what adjtimex returns, and the bit of its status, where no program sets the clock.
const (
	timeError = 5
	unsynced  = 0x40
)

func synchronized(state int, status int32) Finding {
	if state == timeError || status&unsynced != 0 {
		return Warning("time", "no time service sets the clock", "apt install chrony")
	}
	return Well("time", "a time service sets the clock")
}
