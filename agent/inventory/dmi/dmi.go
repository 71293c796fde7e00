// Package dmi walks the tables that firmware describes a machine with (DMTF DSP0134, System Management BIOS 3.7).
//
// Firmware lies, and its tables end early: what comes before the fault is kept, and no offset is trusted.
package dmi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Types of structures (DSP0134, section 7).
const (
	TypeMemoryDevice = 17
	TypeFirmware     = 45
	typeEnd          = 127
)

const (
	headerSize = 4
	// MostStructures bounds a table; real ones have some hundred.
	MostStructures = 8192
)

// ErrTable is returned when a table ends in the middle of a structure.
var ErrTable = errors.New("the SMBIOS table is damaged")

// Structure is one structure of a table.
type Structure struct {
	Type byte
	// data is the formatted area, header included: offsets are those of the standard.
	data []byte
	text [][]byte
}

// Walk returns the structures up to the end of the table or to its first fault, which is the error.
func Walk(table []byte) ([]Structure, error) {
	var out []Structure
	for rest := table; ; {
		if len(out) == MostStructures {
			return out, fmt.Errorf("%w: more than %d structures", ErrTable, MostStructures)
		}
		if len(rest) < headerSize {
			if len(rest) == 0 && len(out) > 0 {
				return out, nil // the end marker is not everybody's habit
			}
			return out, fmt.Errorf("%w: it ends after %d structures", ErrTable, len(out))
		}
		size := int(rest[1])
		if size < headerSize || size > len(rest) {
			return out, fmt.Errorf("%w: structure %d is %d bytes long", ErrTable, len(out), size)
		}
		s := Structure{Type: rest[0], data: rest[:size]}
		end := bytes.Index(rest[size:], []byte{0, 0})
		if end < 0 {
			return out, fmt.Errorf("%w: the texts of structure %d have no end", ErrTable, len(out))
		}
		if end > 0 {
			s.text = bytes.Split(rest[size:size+end], []byte{0})
		}
		rest = rest[size+end+2:]
		if s.Type == typeEnd {
			return out, nil
		}
		out = append(out, s)
	}
}

// Has reports whether the structure is long enough for n bytes at the offset: newer versions have more fields.
func (s Structure) Has(offset, n int) bool { return offset+n <= len(s.data) }

// Byte, Word and Dword read a field; 0 where the structure is too short for it.
func (s Structure) Byte(offset int) byte {
	if !s.Has(offset, 1) {
		return 0
	}
	return s.data[offset]
}

// Word reads two bytes.
func (s Structure) Word(offset int) uint16 {
	if !s.Has(offset, 2) {
		return 0
	}
	return binary.LittleEndian.Uint16(s.data[offset:])
}

// Dword reads four bytes.
func (s Structure) Dword(offset int) uint32 {
	if !s.Has(offset, 4) {
		return 0
	}
	return binary.LittleEndian.Uint32(s.data[offset:])
}

// Text reads the text that a field numbers, from 1; empty where there is none of that number.
func (s Structure) Text(offset int) string {
	n := int(s.Byte(offset))
	if n == 0 || n > len(s.text) {
		return ""
	}
	return string(bytes.TrimSpace(s.text[n-1]))
}
