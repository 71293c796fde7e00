package cdimage

import (
	"encoding/binary"
	"fmt"
)

// A FAT16 file system with one file in it (Microsoft, FAT: General Overview of On-Disk Format, 1.03).
const (
	fatSector    = 512
	fatRootFiles = 512
	fatEntry     = 32
	fatFirst     = 2 // number of the first cluster
	// FAT16 has at least so many clusters, and at most.
	fatLeast, fatMost = 4085 + 16, 65524 - 16
	fatEnd            = 0xffff
	fatHardDisk       = 0xf8
	attrDirectory     = 0x10
)

// efiVolume is a file system with the program as EFI/BOOT/<name>, such as "BOOTX64 EFI".
func efiVolume(name string, program *Image) (*Image, error) {
	perCluster := int64(4)
	clustersOf := func() int64 { return (program.size+perCluster*fatSector-1)/(perCluster*fatSector) + 2 }
	for ; clustersOf() > fatMost; perCluster *= 2 {
		if perCluster == 64 {
			return nil, fmt.Errorf("an EFI program of %d bytes is too big for the image", program.size)
		}
	}
	clusters := max(clustersOf(), fatLeast)
	tableSectors := (2*(clusters+fatFirst) + fatSector - 1) / fatSector
	le := binary.LittleEndian

	head := make([]byte, fatSector)
	copy(head, "\xeb\x3c\x90INGOT   ")
	le.PutUint16(head[11:], fatSector)
	head[13] = byte(perCluster)
	le.PutUint16(head[14:], 1) // reserved
	head[16] = 2               // tables
	le.PutUint16(head[17:], fatRootFiles)
	head[21] = fatHardDisk
	le.PutUint16(head[22:], uint16(tableSectors))
	le.PutUint16(head[24:], 32) // geometry of nothing
	le.PutUint16(head[26:], 64)
	total := 1 + 2*tableSectors + fatRootFiles*fatEntry/fatSector + clusters*perCluster
	le.PutUint32(head[32:], uint32(total))
	copy(head[36:], "\x80\x00\x29\x49\x4e\x47\x4fINGOT EFI  FAT16   ")
	le.PutUint16(head[510:], 0xaa55)

	table := make([]byte, tableSectors*fatSector)
	le.PutUint16(table, 0xff00|fatHardDisk)
	le.PutUint16(table[2:], fatEnd)
	le.PutUint16(table[4:], fatEnd) // EFI
	le.PutUint16(table[6:], fatEnd) // EFI/BOOT
	last := fatFirst + clustersOf() - 1
	for c := int64(fatFirst + 2); c <= last; c++ {
		next := uint16(c + 1)
		if c == last {
			next = fatEnd
		}
		le.PutUint16(table[2*c:], next)
	}
	root := make([]byte, fatRootFiles*fatEntry)
	putFAT(root, "EFI        ", attrDirectory, 2, 0)
	size := int(perCluster * fatSector)
	efi, boot := make([]byte, size), make([]byte, size)
	putFAT(efi, ".          ", attrDirectory, 2, 0)
	putFAT(efi[fatEntry:], "..         ", attrDirectory, 0, 0)
	putFAT(efi[2*fatEntry:], "BOOT       ", attrDirectory, 3, 0)
	putFAT(boot, ".          ", attrDirectory, 3, 0)
	putFAT(boot[fatEntry:], "..         ", attrDirectory, 2, 0)
	putFAT(boot[2*fatEntry:], name, 0, fatFirst+2, program.size)

	v := join(Part{Data: head}, Part{Data: table}, Part{Data: table}, Part{Data: root}, Part{Data: efi}, Part{Data: boot},
		Part{From: program, Size: program.size})
	v.add(Part{Size: total*fatSector - v.size})
	return v, nil
}

// putFAT writes the entry of a directory, with the first date that there is.
func putFAT(at []byte, name string, attributes byte, cluster uint16, size int64) {
	le := binary.LittleEndian
	copy(at, name)
	at[11] = attributes
	for _, date := range []int{16, 18, 24} {
		le.PutUint16(at[date:], 1<<5|1)
	}
	le.PutUint16(at[26:], cluster)
	le.PutUint32(at[28:], uint32(size))
}
