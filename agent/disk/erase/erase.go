// Package erase destroys the data on one disk by the best means that the disk has, and reads back whether it worked.
//
// # Methods
//
//	nvme-sanitize     every block of the NVM subsystem, spare ones too: crypto erase, else block erase, else overwrite
//	nvme-format       every block of the namespace, by Format NVM with user data erase or crypto erase
//	ata-secure-erase  every block of an ATA drive, by SECURITY ERASE UNIT, enhanced where there is that
//	discard           the blocks are given up; the disk must read as zeros afterwards, which no standard promises
//	overwrite         every block that can be addressed is written with zeros
//	auto              the first of these that the disk supports and that verifies
//
// In the words of NIST SP 800-88r1 the first three purge, overwrite clears, and discard does as well as overwrite for
// whoever has only the disk's own interface.
//
// # Verification
//
// Blocks all over the disk are read before and after. For discard and overwrite each must be zeros afterwards; for the
// others, which may leave anything, each that was not zeros must have changed, and the device must report success.
package erase

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
)

// Method is how a disk is erased.
type Method string

// The methods.
const (
	Auto         Method = "auto"
	NVMeSanitize Method = "nvme-sanitize"
	NVMeFormat   Method = "nvme-format"
	ATASecure    Method = "ata-secure-erase"
	Discard      Method = "discard"
	Overwrite    Method = "overwrite"
)

// ErrUnsupported says that the disk cannot be erased in this way. Nothing was changed.
var ErrUnsupported = errors.New("not supported by the disk")

// ErrNotErased says that data was found afterwards, or that the disk reports a failure.
var ErrNotErased = errors.New("the disk is not erased")

// Disk is what is erased.
type Disk interface {
	io.ReaderAt
	io.WriterAt
	Size() int64
	Flush() error
	Discard(off, n int64) error
	// NVMe and ATA send commands; they are nil for disks of other kinds.
	NVMe() AdminQueue
	ATA() PassThrough
}

// Config is one erasure.
type Config struct {
	Disk   Disk
	Method Method
	// Alone says that nothing else lives on the disk's controller: a sanitize takes all of its namespaces.
	Alone bool
	Clock clock.Clock
	// Progress may be nil.
	Progress func(percent int, what string)
}

// Evidence says how a disk was erased and how that was verified.
type Evidence struct {
	Method       Method
	Detail       string   // such as "crypto erase"
	Why          []string // of each better method, why it was not used
	Verification string
	Took         time.Duration
}

// Run erases the disk. ErrUnsupported leaves it as it was; any other error leaves it in an unknown state.
func Run(ctx context.Context, cfg Config) (Evidence, error) {
	if cfg.Progress == nil {
		cfg.Progress = func(int, string) {}
	}
	begun := cfg.Clock.Now()
	before, err := takeSamples(ctx, cfg.Disk)
	if err != nil {
		return Evidence{}, err
	}
	var out Evidence
	var last error
	for _, m := range methods(cfg.Method) {
		out.Method, out.Verification = m, ""
		out.Detail, last = cfg.once(ctx, m, before, &out)
		if last == nil {
			out.Took = cfg.Clock.Now().Sub(begun)
			return out, nil
		}
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		out.Why = append(out.Why, fmt.Sprintf("%s: %v", m, last))
	}
	if cfg.Method == Auto {
		return out, fmt.Errorf("%w: %s", ErrNotErased, strings.Join(out.Why, "; "))
	}
	return out, last
}

// methods gives what is tried, in this order.
func methods(m Method) []Method {
	if m == Auto {
		return []Method{NVMeSanitize, NVMeFormat, ATASecure, Discard, Overwrite}
	}
	return []Method{m}
}

// Parse reads the name of a method; "" is auto.
func Parse(s string) (Method, error) {
	if s == "" {
		return Auto, nil
	}
	for _, m := range append(methods(Auto), Auto) {
		if s == string(m) {
			return m, nil
		}
	}
	return "", fmt.Errorf("no such method %q", s)
}

func (c Config) once(ctx context.Context, m Method, before samples, out *Evidence) (detail string, err error) {
	c.Progress(0, string(m))
	zeros := false
	switch m {
	case NVMeSanitize:
		detail, err = c.sanitize(ctx)
	case NVMeFormat:
		detail, err = c.format()
	case ATASecure:
		detail, err = c.secureErase()
	case Discard:
		zeros, err = true, c.discard(ctx)
	default:
		zeros, err = true, c.overwrite(ctx)
	}
	if err != nil {
		return detail, err
	}
	out.Verification, err = before.verify(ctx, c.Disk, zeros)
	return detail, err
}
