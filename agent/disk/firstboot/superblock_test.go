package firstboot_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent/disk/firstboot"
)

const partition = 256 << 20

// made is the beginning of a file system that its own tool has made.
func made(t *testing.T, tool string, args ...string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fs")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, partition); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), tool, append(args, path)...)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s (Debian: e2fsprogs, btrfs-progs): %v: %s", tool, err, out)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, firstboot.ProbeSize)
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// with sets bits of a word at an offset.
func with(b []byte, at int, bits uint32) []byte {
	out := append([]byte(nil), b...)
	binary.LittleEndian.PutUint32(out[at:], binary.LittleEndian.Uint32(out[at:])|bits)
	return out
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	now := firstboot.Kernel{Major: 6, Minor: 12, Page: 4096, Casefold: true}
	ext4 := made(t, "mke2fs", "-q", "-t", "ext4", "-b", "4096", "-O", "^metadata_csum")
	small := made(t, "mke2fs", "-q", "-t", "ext4", "-b", "1024")
	fold := made(t, "mke2fs", "-q", "-t", "ext4", "-O", "casefold,^metadata_csum")
	summed := made(t, "mke2fs", "-q", "-t", "ext4", "-O", "metadata_csum")
	ext2 := made(t, "mke2fs", "-q", "-t", "ext2")
	btrfs := made(t, "mkfs.btrfs", "-q")
	xfs := make([]byte, firstboot.ProbeSize) // of xfs_db's print of a file system by mkfs.xfs
	copy(xfs, "XFSB\x00\x00\x10\x00")
	binary.BigEndian.PutUint64(xfs[8:], partition/4096)
	binary.BigEndian.PutUint16(xfs[100:], 0xb4a5)
	binary.BigEndian.PutUint16(xfs[102:], 512)
	binary.BigEndian.PutUint32(xfs[216:], 0xb)
	nrext := append([]byte(nil), xfs...)
	binary.BigEndian.PutUint32(nrext[216:], 0x2b)
	const incompat, readOnly = 1024 + 96, 1024 + 100
	for name, c := range map[string]struct {
		b      []byte
		k      firstboot.Kernel
		size   int64
		sector int
		want   string
	}{
		"ext4":                            {ext4, now, partition, 4096, ""},
		"ext4 with checksums":             {summed, now, partition, 512, ""},
		"ext2":                            {ext2, now, partition, 512, ""},
		"btrfs":                           {btrfs, now, partition, 4096, ""},
		"xfs":                             {xfs, now, partition, 512, ""},
		"nothing":                         {make([]byte, firstboot.ProbeSize), now, partition, 4096, ""},
		"1 KiB blocks":                    {small, now, partition, 512, ""},
		"1 KiB blocks on 4096":            {small, now, partition, 4096, "blocks of 1024 bytes, and the disk's sectors have 4096"},
		"xfs for 512 on 4096":             {xfs, now, partition, 4096, "sectors of 512 bytes"},
		"an unknown feature":              {with(ext4, incompat, 1<<30), now, partition, 512, "0x40000000"},
		"an unknown one for writing":      {with(ext4, readOnly, 1<<25), now, partition, 512, "0x2000000"},
		"compression":                     {with(ext4, incompat, 1), now, partition, 512, "compression"},
		"casefold":                        {fold, now, partition, 512, ""},
		"casefold without Unicode":        {fold, firstboot.Kernel{Major: 6, Minor: 12, Page: 4096}, partition, 512, "casefold"},
		"an older kernel":                 {with(ext4, readOnly, 0x10000), firstboot.Kernel{Major: 5, Minor: 10}, partition, 512, "5.10"},
		"a kernel that nobody can name":   {with(ext4, readOnly, 0x10000), firstboot.Kernel{}, partition, 512, ""},
		"64 KiB blocks":                   {with(ext4, 1024+24, 6), now, 1 << 40, 512, "pages have 4096"},
		"larger than its partition":       {ext4, now, partition / 2, 512, "its partition 134217728"},
		"a damaged superblock":            {with(summed, 1024+120, 0x41414141), now, partition, 512, "checksum"},
		"xfs of a newer kernel":           {nrext, firstboot.Kernel{Major: 5, Minor: 10}, partition, 512, "nrext64"},
		"btrfs of a newer kernel":         {with(btrfs, 64<<10+188, 0x10000), firstboot.Kernel{Major: 6, Minor: 1}, partition, 512, "simple_quota"},
		"btrfs with something of its own": {with(btrfs, 64<<10+188, 1<<29), now, partition, 512, "0x20000000"},
	} {
		got := c.k.Refuses(c.b, c.size, c.sector)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func FuzzSuperblock(f *testing.F) {
	f.Add([]byte("XFSB"), uint16(512))
	f.Fuzz(func(_ *testing.T, raw []byte, sector uint16) {
		b := make([]byte, firstboot.ProbeSize)
		copy(b[1024:], raw)
		binary.LittleEndian.PutUint16(b[1080:], 0xef53)
		k := firstboot.Kernel{Major: 6, Minor: 1, Page: 4096}
		k.Refuses(b, 1<<30, int(sector))
		copy(b, raw)
		copy(b[64<<10:], raw)
		copy(b[64<<10+64:], "_BHRfS_M")
		k.Refuses(b, 1<<30, int(sector))
	})
}
