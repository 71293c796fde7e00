package image

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

const (
	sector = 512
	// tableBytes hold a protective MBR, a header and 128 entries, and are more than enough.
	tableBytes = 64 << 10
)

// checkDisk refuses files that are not a whole disk with a GUID partition table at its start (UEFI specification 2.10,
// 5.3). It returns the architecture that the types of the partitions name, and "" where they name none, or several.
func checkDisk(r io.ReaderAt, size int64) (arch string, err error) {
	if size%sector != 0 {
		return "", unsupported("the image has %d bytes, which is no whole number of %d-byte sectors", size, sector)
	}
	head := make([]byte, min(size, tableBytes))
	if n, err := r.ReadAt(head, 0); n < len(head) {
		return "", fmt.Errorf("read the image's beginning: %w", err)
	}
	tail := make([]byte, min(size, sector))
	if n, err := r.ReadAt(tail, size-int64(len(tail))); n < len(tail) {
		return "", fmt.Errorf("read the image's end: %w", err)
	}
	if name := otherFormat(head, tail); name != "" {
		return "",
			unsupported("the file is %s, which is not written to disks; make a raw or qcow2 image of it: qemu-img convert", name)
	}
	if why := tableFault(head, size); why != "" {
		return "", unsupported("the image has no sound GUID partition table at its start: %s", why)
	}
	if why := installerFault(head, size); why != "" {
		return "", unsupported("the installer would refuse the image: %s", why)
	}
	return archOf(head), nil
}

// typeArchs are the partition types that are of one architecture: root, and /usr (Discoverable Partitions
// Specification).
var typeArchs = map[string]string{
	"4f68bce3-e8cd-4db1-96e7-fbcaf984b709": "amd64", "8484680c-9521-48c6-9c11-b0720656f69e": "amd64",
	"b921b045-1df0-41c3-af44-4c6f280d3fae": "arm64", "b0e01050-ee5f-4390-949a-9117dafbd150": "arm64",
}

// archOf reads the types of the partitions in a table that is sound.
func archOf(head []byte) string {
	found := ""
	start, count, each := tableAt(head[sector:])
	for at := start * sector; at < start*sector+count*each; at += each {
		t := head[at : at+16] // the first three fields are little endian
		arch := typeArchs[fmt.Sprintf("%08x-%04x-%04x-%x-%x", binary.LittleEndian.Uint32(t),
			binary.LittleEndian.Uint16(t[4:]),
			binary.LittleEndian.Uint16(t[6:]), t[8:10], t[10:])]
		if arch != "" && found != "" && arch != found {
			return ""
		}
		found = cmp.Or(arch, found)
	}
	return found
}

// tableAt returns the first sector of the table of partitions, the number of its entries, and the bytes of each.
func tableAt(header []byte) (start, count, each uint64) {
	return binary.LittleEndian.Uint64(header[72:]), uint64(binary.LittleEndian.Uint32(header[80:])),
		uint64(binary.LittleEndian.Uint32(header[84:]))
}

// tableFault returns the error of the primary table in the first bytes of a disk of this size.
func tableFault(head []byte, size int64) string {
	if len(head) < 3*sector {
		return "it is too short"
	}
	header := head[sector : 2*sector]
	if !bytes.HasPrefix(header, []byte("EFI PART")) {
		if len(head) > 4096+8 && bytes.HasPrefix(head[4096:], []byte("EFI PART")) {
			return "it is made for sectors of 4096 bytes"
		}
		return "there is no header in the second sector"
	}
	n := binary.LittleEndian.Uint32(header[12:])
	if n < 92 || n > sector {
		return "the header's size is wrong"
	}
	sum := binary.LittleEndian.Uint32(header[16:])
	plain := bytes.Clone(header[:n])
	clear(plain[16:20])
	if crc32.ChecksumIEEE(plain) != sum {
		return "the header's checksum is wrong"
	}
	if binary.LittleEndian.Uint64(header[24:]) != 1 {
		return "the header is another one's copy"
	}
	if last := binary.LittleEndian.Uint64(header[48:]); last >= uint64(size/sector) {
		return "its partitions end behind the image's end"
	}
	return entriesFault(head, header)
}

func entriesFault(head, header []byte) string {
	start, count, each := tableAt(header)
	if each < 128 || each > sector || count == 0 || count > 1024 || start < 2 || start > tableBytes/sector {
		return "the table of partitions is not where it should be"
	}
	begin, end := start*sector, start*sector+count*each
	if end > uint64(len(head)) {
		return "the table of partitions is not where it should be"
	}
	table := head[begin:end]
	if crc32.ChecksumIEEE(table) != binary.LittleEndian.Uint32(header[88:]) {
		return "the checksum of the table of partitions is wrong"
	}
	for at := uint64(0); at < count*each; at += each {
		if !bytes.Equal(table[at:at+16], make([]byte, 16)) {
			return ""
		}
	}
	return "there is no partition"
}

// minRaw is the smallest image that an installer writes: it holds back the first MiB.
const minRaw = 1 << 20

// stateName is the partition that the installer adds (agent/disk/image.StateName).
const stateName = "INGOT-STATE"

// installerFault is why an installer could not add its partition to a table that is sound, or should not write it: it
// would be found after the reboot only (internal/gpt, Add and Fit).
func installerFault(head []byte, size int64) string {
	if size < minRaw {
		return fmt.Sprintf("it has %d bytes, and the smallest image has %d", size, minRaw)
	}
	type partition struct{ number, first, last uint64 }
	var used []partition
	start, count, each := tableAt(head[sector:])
	for i := range count {
		e := head[start*sector+i*each:][:each]
		if bytes.Equal(e[:16], make([]byte, 16)) {
			continue
		}
		p := partition{i + 1, binary.LittleEndian.Uint64(e[32:]), binary.LittleEndian.Uint64(e[40:])}
		if p.first > p.last || p.last >= uint64(size/sector) || p.first < start+(count*each+sector-1)/sector {
			return fmt.Sprintf("partition %d is from sector %d to %d of %d", p.number, p.first, p.last, size/sector)
		}
		if nameOf(e) == stateName {
			return fmt.Sprintf("partition %d is called %s: it was read from a machine that was installed; delete that partition",
				p.number, stateName)
		}
		for _, o := range used {
			if p.first <= o.last && o.first <= p.last {
				return fmt.Sprintf("partitions %d and %d overlap", o.number, p.number)
			}
		}
		used = append(used, p)
	}
	if uint64(len(used)) == count {
		return fmt.Sprintf("all %d entries of its partition table are in use, and one is needed", count)
	}
	return ""
}

// nameOf is the name in an entry, as far as it is ASCII in UTF-16LE.
func nameOf(entry []byte) string {
	var name []byte
	for i := 56; i+1 < 128 && entry[i] != 0 && entry[i+1] == 0; i += 2 {
		name = append(name, entry[i])
	}
	return string(name)
}

// otherFormat names a file that is neither raw nor of a format that is read. It goes by the first bytes, or by the
// footer of a fixed VHD (Virtual Hard Disk Image Format Specification 1.0, cookie "conectix"). An ISO 9660 file system
// has a descriptor (ECMA-119, 8.1: sector 16 of 2048 bytes, "CD001").
func otherFormat(head, tail []byte) string {
	const descriptor = 16 * 2048
	switch {
	case bytes.HasPrefix(tail, []byte("conectix")):
		return "a VHD (a fixed one has its footer behind the disk)"
	case len(head) > descriptor+6 && string(head[descriptor+1:descriptor+6]) == "CD001":
		return "an ISO 9660 image"
	case bytes.HasPrefix(head, []byte("vhdxfile")):
		return "a VHDX"
	case bytes.HasPrefix(head, []byte("KDMV")):
		return "a VMDK"
	case len(head) > 68 && binary.LittleEndian.Uint32(head[64:]) == 0xbeda107f:
		return "a VDI"
	}
	for magic, name := range map[string]string{
		"\x1f\x8b": "compressed by gzip", "\xfd7zXZ\x00": "compressed by xz", "BZh": "compressed by bzip2",
		"\x04\x22\x4d\x18": "compressed by lz4",
	} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return name
		}
	}
	return ""
}
