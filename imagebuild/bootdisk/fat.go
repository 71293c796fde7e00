package bootdisk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// Offsets in a FAT32 file system (Microsoft, FAT: General Overview of On-Disk Format, 1.03).
const (
	fatReserved = 14
	fatCopies   = 16
	fatSize32   = 36
	fatRoot     = 44

	dirEntryLen   = 32
	dirAttributes = 11
	dirTimes      = 13 // tenths and time and date of creation, date of access: up to the high half of the cluster
	dirHigh       = 20
	dirWritten    = 22 // time and date
	dirLow        = 26

	attrLongName  = 0x0f
	attrDirectory = 0x10

	// fatEpoch is 1 January 1980 as a date.
	fatEpoch = 1<<5 | 1
	fatEnd   = 0x0ffffff8
)

// stampFAT sets all times in the file system to the first that it can express: mtools and syslinux write the time of
// the build.
func stampFAT(img string) error {
	data, err := os.ReadFile(img)
	if err != nil {
		return fmt.Errorf("set times in EFI system partition: %w", err)
	}
	v, err := openFAT(data)
	if err != nil {
		return fmt.Errorf("set times in EFI system partition: %w", err)
	}
	if err := v.stampDir(binary.LittleEndian.Uint32(data[fatRoot:]), 0); err != nil {
		return fmt.Errorf("set times in EFI system partition: %w", err)
	}
	return os.WriteFile(img, data, 0o600)
}

// fat is a file system in memory.
type fat struct {
	data        []byte
	table       int // offset of the first allocation table
	clusters    int // offset of cluster 2
	clusterSize int
}

var errFAT = errors.New("no FAT32 file system")

func openFAT(data []byte) (fat, error) {
	le := binary.LittleEndian
	if len(data) < sector || le.Uint16(data[11:]) != sector || le.Uint32(data[fatSize32:]) == 0 {
		return fat{}, errFAT
	}
	v := fat{data: data, table: int(le.Uint16(data[fatReserved:])) * sector, clusterSize: int(data[13]) * sector}
	v.clusters = v.table + int(data[fatCopies])*int(le.Uint32(data[fatSize32:]))*sector
	if v.clusterSize == 0 || v.clusters > len(data) {
		return fat{}, errFAT
	}
	return v, nil
}

// stampDir goes through a directory and those in it.
func (v fat) stampDir(cluster uint32, depth int) error {
	if depth > 8 {
		return fmt.Errorf("%w: directories within directories", errFAT)
	}
	le := binary.LittleEndian
	for cluster >= 2 && cluster < fatEnd {
		at := v.clusters + int(cluster-2)*v.clusterSize
		next := v.table + int(cluster)*4
		if at+v.clusterSize > len(v.data) || next+4 > v.clusters {
			return fmt.Errorf("%w: cluster %d is outside", errFAT, cluster)
		}
		for end := at + v.clusterSize; at < end; at += dirEntryLen {
			e := v.data[at : at+dirEntryLen]
			if e[0] == 0 {
				return nil
			}
			if err := v.stampEntry(e, depth); err != nil {
				return err
			}
		}
		cluster = le.Uint32(v.data[next:]) & 0x0fffffff
	}
	return nil
}

func (v fat) stampEntry(e []byte, depth int) error {
	le := binary.LittleEndian
	if e[dirAttributes] == attrLongName || e[0] == 0xe5 {
		return nil
	}
	clear(e[dirTimes:dirHigh])
	le.PutUint16(e[16:], fatEpoch)
	le.PutUint16(e[18:], fatEpoch)
	le.PutUint16(e[dirWritten:], 0)
	le.PutUint16(e[dirWritten+2:], fatEpoch)
	if e[dirAttributes]&attrDirectory == 0 || e[0] == '.' {
		return nil
	}
	return v.stampDir(uint32(le.Uint16(e[dirHigh:]))<<16|uint32(le.Uint16(e[dirLow:])), depth+1)
}
