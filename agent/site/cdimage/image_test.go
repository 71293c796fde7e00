package cdimage

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
)

func sample(t *testing.T, efi, kernel int, bios bool) *Image {
	t.Helper()
	c := Config{Arch: "amd64", EFI: []Part{{Data: bytes.Repeat([]byte("e"), efi)}}, Cmdline: "quiet"}
	if bios {
		c.Loader = &Loader{Program: bytes.Repeat([]byte("l"), 4097), Module: []byte("module")}
		c.Kernel = Part{From: bytes.NewReader(bytes.Repeat([]byte("k"), kernel)), Size: int64(kernel)}
		c.Initrd = Part{Data: []byte("initrd")}
		c.More = Archive("ingot-media.json", []byte("{}"))
	}
	i, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestReadsAtAnyOffset: reads in pieces of any size return the same bytes as one read.
func TestReadsAtAnyOffset(t *testing.T) {
	t.Parallel()
	i := sample(t, 5000, 7001, true)
	whole := make([]byte, i.Size())
	if n, err := i.ReadAt(whole, 0); err != nil || int64(n) != i.Size() {
		t.Fatal(n, err)
	}
	for _, size := range []int64{1777, 2048, 65536, i.Size() - 1} {
		var out bytes.Buffer
		buf := make([]byte, size)
		if _, err := io.CopyBuffer(&out, struct{ io.Reader }{io.NewSectionReader(i, 0, i.Size())}, buf); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), whole) {
			t.Errorf("in pieces of %d the image is another", size)
		}
	}
	if n, err := i.ReadAt(make([]byte, 10), i.Size()-4); n != 4 || err != io.EOF {
		t.Errorf("at the end: %d, %v", n, err)
	}
	if _, err := i.ReadAt(make([]byte, 1), -1); err == nil {
		t.Error("reads before its start")
	}
}

// TestCatalogue follows the boot catalogue as firmware does, to the loader and to the EFI program.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	le := binary.LittleEndian
	for _, bios := range []bool{false, true} {
		i := sample(t, 70000, 7001, bios)
		image := make([]byte, i.Size())
		if _, err := i.ReadAt(image, 0); err != nil {
			t.Fatal(err)
		}
		if got := le.Uint32(image[volumeAt*block+80:]); int64(got)*block != i.Size() {
			t.Errorf("a volume of %d blocks in %d bytes", got, i.Size())
		}
		catalogue := image[le.Uint32(image[bootAt*block+71:])*block:]
		var sum uint16
		for n := 0; n < 32; n += 2 {
			sum += le.Uint16(catalogue[n:])
		}
		if sum != 0 || catalogue[30] != 0x55 || catalogue[31] != 0xaa {
			t.Errorf("the catalogue does not add up: %x", catalogue[:32])
		}
		efi, platform := catalogue[32:], catalogue[1]
		if bios {
			loader := image[le.Uint32(catalogue[40:])*block:]
			if platform != platformBIOS || le.Uint32(loader[12:]) != le.Uint32(catalogue[40:]) ||
				le.Uint32(loader[16:]) != 4097 {
				t.Errorf("the loader's table is %x", loader[8:24])
			}
			efi, platform = catalogue[96:], catalogue[65]
		}
		if platform != platformEFI || efi[0] != 0x88 || le.Uint16(efi[6:]) != 0 {
			t.Errorf("the entry for UEFI is %x, of platform %x", efi[:12], platform)
		}
		if got := programIn(image[le.Uint32(efi[8:])*block:]); !bytes.Equal(got, bytes.Repeat([]byte("e"), 70000)) {
			t.Errorf("an EFI program of %d bytes", len(got))
		}
	}
}

// programIn follows EFI/BOOT/BOOTX64.EFI in a FAT16 file system, cluster by cluster.
func programIn(fat []byte) []byte {
	le := binary.LittleEndian
	reserved, tables := int(le.Uint16(fat[14:]))*fatSector, int(le.Uint16(fat[22:]))*fatSector
	root := reserved + int(fat[16])*tables
	data := root + int(le.Uint16(fat[17:]))*fatEntry
	size := int(fat[13]) * fatSector
	cluster := func(n uint16) []byte { return fat[data+int(n-fatFirst)*size:][:size] }
	find := func(dir []byte, name string) []byte {
		for ; len(dir) >= fatEntry && dir[0] != 0; dir = dir[fatEntry:] {
			if string(dir[:11]) == name {
				return dir[:fatEntry]
			}
		}
		return make([]byte, fatEntry)
	}
	efi := find(fat[root:data], "EFI        ")
	boot := find(cluster(le.Uint16(efi[26:])), "BOOT       ")
	file := find(cluster(le.Uint16(boot[26:])), "BOOTX64 EFI")
	var out []byte
	for n := le.Uint16(file[26:]); n >= fatFirst && n < 0xfff8; n = le.Uint16(fat[reserved+2*int(n):]) {
		out = append(out, cluster(n)...)
	}
	return out[:min(len(out), int(le.Uint32(file[28:])))]
}

// TestRefuses what could not start.
func TestRefuses(t *testing.T) {
	t.Parallel()
	loader := &Loader{Program: make([]byte, 4096), Module: []byte("m")}
	for name, c := range map[string]Config{
		"nothing":              {},
		"another architecture": {EFI: []Part{{Data: []byte("e")}}, Arch: "riscv64"},
		"no loader":            {Loader: &Loader{}, Kernel: Part{Data: []byte("k")}, Initrd: Part{Data: []byte("i")}},
		"two lines":            {Loader: loader, Kernel: Part{Data: []byte("k")}, Cmdline: "a\nb"},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
