package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"time"

	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/gpt"
)

// Disk is the target of an image. Offsets, lengths and buffers are multiples of 4096; package block has the real one.
// ReadAt must read from the device.
type Disk interface {
	io.ReaderAt
	io.WriterAt
	// Size and Sector are bytes.
	Size() int64
	Sector() int
	// Flush returns when what was written is durable.
	Flush() error
	// Discard leaves the content of the range undefined; Zero makes a range read as zeros, without writing them. Both
	// return block.ErrUnsupported where the disk cannot.
	Discard(off, n int64) error
	Zero(off, n int64) error
	// RereadTable notifies the kernel of a new partition table.
	RereadTable() error
}

// StateName is the name of the partition for the new system's identity; its file system has it as a label.
const StateName = "INGOT-STATE"

const (
	// StateSize is the size of that partition.
	StateSize = 32 << 20
	// chunk is how much is read, written and held at once; three of them are in memory.
	chunk  = 4 << 20
	chunks = 3
	// grain is the finest piece of zeros that is left out where zeros are there already.
	grain = 64 << 10
)

// Job is one image for one disk. Open, RawSize, RawDigest and Disk are required.
type Job struct {
	Disk Disk
	// Open returns the raw bytes: see Open.
	Open      func(ctx context.Context) (io.ReadCloser, error)
	RawSize   int64
	RawDigest [sha256.Size]byte
	// MinimumDisk is what the image asks for, in bytes.
	MinimumDisk int64
	// Others returns the partitions of the machine's other disks, by the disk's name; nil: none.
	Others func() (map[string][]gpt.Partition, error)
	// Judge refuses a root file system before the first byte is changed; nil: none.
	Judge Judge
	// Begin has the last word before the first byte is changed; nil is yes.
	Begin func(ctx context.Context) error
	// State returns the file system of the state partition, at most StateSize bytes; nil: there is no such partition.
	State func() (io.ReadCloser, error)
	// Identity returns the files of the new system, and Fill puts them into the file system, which lies at the offset.
	// They are called when the image has been verified.
	Identity func(ctx context.Context) (map[string][]byte, error)
	Fill     func(ctx context.Context, off, size int64, files map[string][]byte) error
	// Customize changes file systems of the image, which was verified before, and must read back what it has written. nil:
	// the image stays as it is.
	Customize func(ctx context.Context, l Layout) (Custom, error)
	// Committing is called, and must make its argument durable, before the disk can become bootable.
	Committing func(ctx context.Context, c Commit) error
	// Progress may be nil.
	Progress func(Progress)
	Clock    clock.Clock
}

// Layout is what will be on the disk: the partitions of the image, and the state partition with this PARTUUID, "" for
// none.
type Layout struct {
	Partitions []gpt.Partition
	StateID    string
	// End is where the state partition begins, or the room for partitions ends, in bytes.
	End int64
}

// Custom is what Customize has done.
type Custom struct {
	// Changes are the files that were added.
	Changes []firstboot.Change
	// System describes where they were added, such as "debian on partition 1 (ext4)".
	System string
	// Grown is the new size of a partition by its number, in bytes.
	Grown map[int]int64
	// Volume is a file system for a further partition; nil: none.
	Volume *Volume
	// Mounts are data disks that were found or made.
	Mounts []firstboot.Mount
	// Warnings are faults that take nothing away from what was read back.
	Warnings []string
}

// Volume is a partition that is added before the state partition, or at the end of the disk where there is none.
type Volume struct {
	Name string
	Type gpt.GUID
	// Data is the whole file system of Size bytes, a multiple of a MiB. It is closed.
	Data io.ReadCloser
	Size int64
}

// Commit is what Check needs to recognize the disk.
type Commit struct {
	// Head is the SHA-256 of the first MiB on the disk, in hex, and Undo leads from it to that of the image.
	Head string    `json:"head"`
	Undo gpt.Patch `json:"undo"`
	// StateID is the identity of the state partition.
	StateID string `json:"state_id"`
	// System and Changes are what was added to the image, after it had been read back and found right.
	System  string             `json:"system,omitempty"`
	Changes []firstboot.Change `json:"changes,omitempty"`
	Mounts  []firstboot.Mount  `json:"mounts,omitempty"`
}

// Progress is how far the write has come. Done and Total are bytes of the stage.
type Progress struct {
	Stage       string
	Percent     int // of the whole
	Done, Total int64
	Rate        int64         // bytes per second in this stage; 0 is unknown
	ETA         time.Duration // of this stage; 0 is unknown
}

// Stages of a Write, in their order.
const (
	StageCheck    = "check"
	StageZero     = "zero"
	StageWrite    = "write"
	StageVerify   = "verify"
	StageIdentity = "identity"
	StageSystem   = "system"
	StageCommit   = "commit"
)

// Left is what a Write has left on the disk.
type Left int

// The states of the disk.
const (
	// LeftAsItWas: not one byte was written.
	LeftAsItWas Left = iota
	// LeftUnknown: an old or a new partition table may be there, whole or in part.
	LeftUnknown
	// LeftUnbootable: both ends were read back as zeros, so that no partition table is there.
	LeftUnbootable
	// LeftImage: the image and its tables are there and were read back.
	LeftImage
)

// String returns it as the predicate of a sentence about the disk.
func (l Left) String() string {
	return [...]string{
		"was not changed", "may hold a partition table, and may boot in part", "does not boot",
		"holds the whole image, and boots",
	}[l]
}

// Evidence is what was read back, and how it went.
type Evidence struct {
	Left   Left
	Digest [sha256.Size]byte
	Bytes  int64
	// Written is how many bytes of the image were written, the others being zeros that were there.
	Written int64
	// StateID is the identity of the state partition (its PARTUUID).
	StateID string
	// Zeroed is set when the disk was ordered to make its blocks zeros, so that zeros were not written.
	Zeroed bool
	// Write is the time from the first byte to the last flush, Verify that of the reading back.
	Write, Verify, Total time.Duration
	// System and Changes are what was added to the image: see Custom.
	System  string
	Changes []firstboot.Change
	Mounts  []firstboot.Mount
	// Warnings are faults that take nothing away from what was read back.
	Warnings []string
}

// DigestString is "sha256:<hex>".
func (e Evidence) DigestString() string { return "sha256:" + hex.EncodeToString(e.Digest[:]) }

// Rate is in bytes per second.
func Rate(n int64, t time.Duration) int64 {
	if t <= 0 {
		return 0
	}
	return int64(float64(n) / t.Seconds())
}
