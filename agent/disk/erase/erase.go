// Package erase destroys the data on one disk by the best means that the disk has, and reads back whether it worked.
//
// # Methods
//
//	nvme-sanitize     every block of the NVM subsystem, spare ones too: crypto erase, else block erase, else overwrite
//	nvme-format       every block of the namespace, by Format NVM with user data erase or crypto erase
//	ata-secure-erase  every block of an ATA drive, by SECURITY ERASE UNIT, enhanced where there is that
//	discard           the blocks are discarded, and made zeros where the device has a command that guarantees them
//	overwrite         every block that can be addressed is written with zeros
//	auto              the first of these that the disk supports and that verifies
//
// In the words of NIST SP 800-88r1 the first three purge, overwrite clears. discard equals overwrite for a reader who
// has only the disk's own interface.
//
// # Verification
//
// For discard and overwrite the whole disk is read back, and each byte must be zero. That is no proof for a discard
// without guaranteed zeros: such a disk may show its old data again after a loss of power. auto overwrites it then, and
// the method discard reports it as unproven. The others may leave any content: there the device must report success,
// and samples at random places must have changed. Random bytes are written into empty samples first. The evidence has
// the number of bytes read.
//
// What the commands of the disk keep from being addressed (hidden areas) is looked for and named: see hidden.go.
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

// ErrUnsupported is returned when the disk cannot be erased in this way. Nothing was changed.
var ErrUnsupported = errors.New("not supported by the disk")

// ErrNotErased is returned when data was found afterwards, or when the disk reports a failure.
var ErrNotErased = errors.New("the disk is not erased")

// Disk is the disk to erase.
type Disk interface {
	io.ReaderAt
	io.WriterAt
	Size() int64
	Flush() error
	Discard(off, n int64) error
	// Zero makes a range read as zeros by a command of the device that guarantees it; block.ErrUnsupported where it has
	// none.
	Zero(off, n int64) error
	// NVMe and ATA send commands; they are nil for disks of other kinds.
	NVMe() AdminQueue
	ATA() PassThrough
}

// Config is one erasure.
type Config struct {
	Disk   Disk
	Method Method
	// Alone is set when the disk's controller has no other namespace in use: a sanitize takes all of its namespaces.
	Alone bool
	Clock clock.Clock
	// Progress may be nil.
	Progress func(percent int, what string)
}

// Evidence records how a disk was erased and how that was verified.
type Evidence struct {
	Method       Method
	Detail       string   // such as "crypto erase"
	Why          []string // of each better method, why it was not used
	Verification string
	// Hidden lists the areas that cannot be addressed, and the reasons why they could not be looked for.
	Hidden []string
	// Notes are what else a reader must know, such as a password that was removed.
	Notes []string
	Took  time.Duration
}

// Run erases the disk. ErrUnsupported leaves it as it was, but for a password of ours that is removed; any other error
// leaves it in an unknown state.
func Run(ctx context.Context, cfg Config) (Evidence, error) {
	if cfg.Progress == nil {
		cfg.Progress = func(int, string) {}
	}
	begun := cfg.Clock.Now()
	var out Evidence
	foreign, err := cfg.prepare(ctx, &out)
	if err != nil {
		return out, err
	}
	out.Hidden = cfg.hidden()
	if err := cfg.try(ctx, &out); err != nil {
		return out, errors.Join(err, cfg.noPasswordOfOurs(foreign, &out))
	}
	out.Took = cfg.Clock.Now().Sub(begun)
	return out, cfg.noPasswordOfOurs(foreign, &out)
}

// prepare ends what keeps the disk from being read: a sanitize under way, a password of ours.
func (c Config) prepare(ctx context.Context, out *Evidence) (foreignPassword bool, err error) {
	if err := c.awaitSanitize(ctx, out); err != nil {
		return false, err
	}
	if err := c.awaitATASanitize(ctx, out); err != nil {
		return false, err
	}
	return c.removeOurPassword(out)
}

// try uses one method after the other.
func (c Config) try(ctx context.Context, out *Evidence) error {
	var last error
	for _, m := range methods(c.Method) {
		out.Method, out.Verification = m, ""
		out.Detail, last = c.once(ctx, m, out)
		if last == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		out.Why = append(out.Why, fmt.Sprintf("%s: %v", m, last))
	}
	if c.Method == Auto {
		return fmt.Errorf("%w: %s", ErrNotErased, strings.Join(out.Why, "; "))
	}
	return last
}

// methods returns the methods of erasure in the order in which they are tried.
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

func (c Config) once(ctx context.Context, m Method, out *Evidence) (detail string, err error) {
	var before samples
	c.Progress(0, string(m))
	switch m {
	case NVMeSanitize:
		detail, err = c.sanitize(ctx, &before)
	case NVMeFormat:
		detail, err = c.format(&before)
	case ATASecure:
		detail, err = c.secureErase(&before)
	case Discard:
		err = c.discard(ctx, out)
	default:
		err = c.overwrite(ctx)
	}
	switch {
	case err != nil:
		return detail, err
	case m == Discard || m == Overwrite:
		out.Verification, err = c.verifyZeros(ctx)
	default:
		out.Verification, err = before.verifyChanged(ctx, c.Disk)
	}
	return detail, err
}

// deviceTime is how long a device may take to erase itself: one and a half times its own estimate plus 10 minutes, at
// least an hour plus its size at 50 MiB/s.
func (c Config) deviceTime(says time.Duration) time.Duration {
	const slow = 50 << 20 // bytes a second
	return max(says*3/2+10*time.Minute, time.Hour+time.Duration(c.Disk.Size()/slow)*time.Second)
}
