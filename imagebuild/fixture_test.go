package imagebuild

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/internal/debian"
)

// writeFile writes below dir, making directories on the way.
func writeFile(t *testing.T, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// testKernel has a module that depends on two that depend on the same fourth, and one that is built in.
func testKernel(t *testing.T) debian.Kernel {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, dir, "modules.builtin", []byte("kernel/fs/ext4/ext4.ko\n"))
	for name, info := range map[string]string{
		"a/top":         "license=GPL\x00depends=left-one,right,ext4\x00",
		"b/left-one":    "depends=base\x00",
		"c/right":       "depends=base\x00",
		"d/base":        "depends=\x00",
		"e/broken":      "depends=absent\x00alias=pci:v3*\x00",
		"e/crc_generic": "depends=\x00",
		"f/card": "alias=pci:v1*\x00alias=pci:v2*\x00depends=\x00softdep=pre: left-one gone crc post: top\x00" +
			"firmware=maker/card.bin\x00firmware=maker/old.bin\x00",
	} {
		writeFile(t, dir, "kernel/"+name+".ko", object(t, info, elf.PT_LOAD))
	}
	return debian.Kernel{Release: "test", ModulesDir: dir}
}

// object makes the smallest ELF file that has one program header of the given type and a section .modinfo.
func object(t *testing.T, info string, prog elf.ProgType) []byte {
	t.Helper()
	const headerLen, progLen, sectionLen = 64, 56, 64
	names := "\x00.modinfo\x00"
	body := uint64(headerLen + progLen + 3*sectionLen)
	header := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phoff: headerLen, Phentsize: progLen, Phnum: 1,
		Shoff: headerLen + progLen, Shentsize: sectionLen, Shnum: 3, Shstrndx: 1, Ehsize: headerLen,
	}
	var b bytes.Buffer
	for _, part := range []any{
		header,
		elf.Prog64{Type: uint32(prog)},
		elf.Section64{},
		elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: body, Size: uint64(len(names))},
		elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: body + uint64(len(names)), Size: uint64(len(info))},
		[]byte(names + info),
	} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// unpacked is one file of an archive, as read back.
type unpacked struct {
	name                string
	mode, mtime         uint64
	major, minor, inode uint64
	data                string
}

// unpack reads a newc archive and fails on anything that the kernel would not accept.
func unpack(t *testing.T, archive []byte) []unpacked {
	t.Helper()
	var files []unpacked
	for at := 0; ; {
		header := string(archive[at : at+110])
		if !strings.HasPrefix(header, "070701") {
			t.Fatalf("no magic at byte %d", at)
		}
		field := func(i int) uint64 {
			n, err := strconv.ParseUint(header[6+8*i:14+8*i], 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		nameLen, size := int(field(11)), int(field(6))
		name := strings.TrimSuffix(string(archive[at+110:at+110+nameLen]), "\x00")
		data := align(at + 110 + nameLen)
		if name == "TRAILER!!!" {
			return files
		}
		files = append(files, unpacked{
			name: name, inode: field(0), mode: field(1), mtime: field(5), major: field(9), minor: field(10),
			data: string(archive[data : data+size]),
		})
		at = align(data + size)
	}
}

func align(n int) int { return (n + 3) / 4 * 4 }
