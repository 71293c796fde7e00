package httpboot

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
)

// stub is an EFI program of one section, with room for more in its headers.
func stub() []byte {
	const newHeader, headers = 0x80, 0x400
	var b bytes.Buffer
	dos := make([]byte, newHeader)
	copy(dos, "MZ")
	dos[0x3c] = newHeader
	b.Write(dos)
	b.WriteString("PE\x00\x00")
	for _, part := range []any{
		pe.FileHeader{Machine: pe.IMAGE_FILE_MACHINE_AMD64, NumberOfSections: 1, SizeOfOptionalHeader: 240,
			Characteristics: 0x206},
		pe.OptionalHeader64{
			Magic: 0x20b, SectionAlignment: 0x200, FileAlignment: 0x200, SizeOfHeaders: headers, SizeOfImage: 0x1200,
			NumberOfRvaAndSizes: 16,
		},
		pe.SectionHeader32{
			Name: [8]uint8{'.', 't', 'e', 'x', 't'}, VirtualSize: 4, VirtualAddress: 0x1000, SizeOfRawData: 0x200,
			PointerToRawData: headers,
		},
	} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			panic(err) // a buffer takes everything
		}
	}
	b.Write(make([]byte, headers+0x200-b.Len()))
	return b.Bytes()
}
