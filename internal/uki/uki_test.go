package uki

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// stub is the smallest EFI program with one section, and room for more in its headers.
func stub(t *testing.T, machine uint16) []byte {
	t.Helper()
	const newHeader, headers = 0x80, 0x400
	var b bytes.Buffer
	dos := make([]byte, newHeader)
	copy(dos, "MZ")
	dos[newHeaderAt] = newHeader
	b.Write(dos)
	b.WriteString("PE\x00\x00")
	code := []byte("code")
	for _, part := range []any{
		pe.FileHeader{Machine: machine, NumberOfSections: 1, SizeOfOptionalHeader: 240, Characteristics: 0x206},
		pe.OptionalHeader64{
			Magic: magicPE32Plus, SectionAlignment: 0x200, FileAlignment: 0x200, SizeOfHeaders: headers, SizeOfImage: 0x1200,
			NumberOfRvaAndSizes: 16, CheckSum: 7,
		},
		pe.SectionHeader32{
			Name: [8]uint8{'.', 't', 'e', 'x', 't'}, VirtualSize: uint32(len(code)), VirtualAddress: 0x1000,
			SizeOfRawData:    0x200,
			PointerToRawData: headers,
		},
	} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	b.Write(make([]byte, headers-b.Len()))
	b.Write(code)
	b.Write(make([]byte, 0x200-len(code)))
	return b.Bytes()
}

func parts(t *testing.T) Parts {
	t.Helper()
	return Parts{
		Stub: stub(t, pe.IMAGE_FILE_MACHINE_AMD64), Linux: bytes.Repeat([]byte("kernel"), 1000),
		Initrd:  bytes.Repeat([]byte("i"), 5001),
		Cmdline: "quiet panic=5", OSRelease: "ID=test\n", Release: "6.1.0",
	}
}

func TestBuild(t *testing.T) {
	t.Parallel()
	p := parts(t)
	image, err := Build(p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Build(p)
	if err != nil || !bytes.Equal(image, again) {
		t.Errorf("two builds differ (%v)", err)
	}
	for name, want := range map[string][]byte{
		".text": []byte("code"), ".osrel": []byte(p.OSRelease), ".uname": []byte(p.Release), ".initrd": p.Initrd,
		".linux":   p.Linux,
		".cmdline": []byte("quiet panic=5" + strings.Repeat(" ", CmdlineBytes-13)),
	} {
		if got, err := Contents(image, name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, want %d (%v)", name, len(got), len(want), err)
		}
	}
	if got, err := Contents(image, ".none"); got != nil || err != nil {
		t.Errorf("a section that isn't there: %q, %v", got, err)
	}
	checkLayout(t, image)
}

// checkLayout holds what firmware relies on: sections in order, aligned, apart, and inside of the image.
func checkLayout(t *testing.T, image []byte) {
	t.Helper()
	f, err := pe.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	opt := f.OptionalHeader.(*pe.OptionalHeader64)
	var memory, file uint32
	for _, s := range f.Sections {
		if s.VirtualAddress < memory || s.VirtualAddress%pageLen != 0 || s.Offset < file || s.Offset%opt.FileAlignment != 0 {
			t.Errorf("%s lies at %#x, in the file at %#x; before it ends at %#x and %#x", s.Name, s.VirtualAddress, s.Offset,
				memory, file)
		}
		memory, file = s.VirtualAddress+s.VirtualSize, s.Offset+s.Size
	}
	if opt.SizeOfImage < memory || int(file) != len(image) || opt.CheckSum != 0 {
		t.Errorf("image of %#x bytes in memory ends at %#x, file of %d at %d, checksum %d", opt.SizeOfImage, memory,
			len(image), file, opt.CheckSum)
	}
	if last := f.Sections[len(f.Sections)-1].Name; last != ".linux" {
		t.Errorf("%s comes last", last)
	}
}

func TestCommandLineIsReplacedInPlace(t *testing.T) {
	t.Parallel()
	image, err := Build(parts(t))
	if err != nil {
		t.Fatal(err)
	}
	span, err := Cmdline(bytes.NewReader(image))
	if err != nil || span.Size != CmdlineBytes {
		t.Fatalf("%+v, %v", span, err)
	}
	const line = "ingot.role=installer ingot.token=t"
	filled, err := Fill(line, span.Size)
	if err != nil {
		t.Fatal(err)
	}
	copy(image[span.Offset:], filled)
	if got, err := Contents(image, ".cmdline"); err != nil || strings.TrimRight(string(got), " ") != line {
		t.Errorf("%q, %v", got, err)
	}
}

func TestFillRefuses(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{strings.Repeat("x", 11), "a\nb", "a\x00b", "é"} {
		if got, err := Fill(bad, 10); !errors.Is(err, ErrCmdline) {
			t.Errorf("%q gives %q, %v", bad, got, err)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	t.Parallel()
	full := stub(t, pe.IMAGE_FILE_MACHINE_AMD64)
	// Pretends that the headers end behind the first section's entry.
	binary.LittleEndian.PutUint32(full[0x80+4+coffLen+optHeaderSize:], 0x1b0)
	for name, c := range map[string]struct {
		change func(*Parts)
		says   string
	}{
		"no program":       {func(p *Parts) { p.Stub = []byte("text") }, "not an EFI program"},
		"cut program":      {func(p *Parts) { p.Stub = p.Stub[:0x100] }, "not an EFI program"},
		"no room":          {func(p *Parts) { p.Stub = full }, "no room"},
		"bad command line": {func(p *Parts) { p.Cmdline = "a\nb" }, "character"},
	} {
		p := parts(t)
		c.change(&p)
		if _, err := Build(p); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want one with %q", name, err, c.says)
		}
	}
	if _, err := Cmdline(bytes.NewReader(stub(t, pe.IMAGE_FILE_MACHINE_AMD64))); err == nil {
		t.Error("found a command line in a program without one")
	}
	if _, err := Cmdline(strings.NewReader("text")); err == nil {
		t.Error("found a command line in a text")
	}
}

func TestMachine(t *testing.T) {
	t.Parallel()
	for machine, want := range map[uint16]string{
		pe.IMAGE_FILE_MACHINE_AMD64: "amd64", pe.IMAGE_FILE_MACHINE_ARM64: "arm64", pe.IMAGE_FILE_MACHINE_RISCV64: "",
	} {
		if got, err := Machine(stub(t, machine)); got != want || (err == nil) != (want != "") {
			t.Errorf("machine %#x: %q, %v", machine, got, err)
		}
	}
}
