package uki

import (
	"bytes"
	"debug/pe"
	"io"
	"strings"
	"testing"
)

// assemble reads an image piece by piece.
func assemble(t *testing.T, image []byte, pieces []Piece) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, p := range pieces {
		if p.Data != nil {
			out.Write(p.Data)
			continue
		}
		if _, err := io.Copy(&out, io.NewSectionReader(bytes.NewReader(image), p.Offset, p.Size)); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// TestExtend: whatever the lengths, the copy is a program whose sections neither overlap nor change, but for the two.
func TestExtend(t *testing.T) {
	t.Parallel()
	for _, initrd := range []int{1, 511, 512, 4095, 4096, 70001} {
		for _, tail := range []int{0, 4, 512, 5000} {
			linux := bytes.Repeat([]byte("k"), 9001)
			image, err := Build(
				Parts{Stub: stub(t, pe.IMAGE_FILE_MACHINE_AMD64), Linux: linux, Initrd: bytes.Repeat([]byte("i"), initrd),
					Cmdline: "own"},
			)
			if err != nil {
				t.Fatal(err)
			}
			more := bytes.Repeat([]byte("m"), tail)
			pieces, err := Extend(bytes.NewReader(image), int64(len(image)), Extension{Cmdline: "theirs",
				Initrd: more})
			if err != nil {
				t.Fatal(err)
			}
			got := assemble(t, image, pieces)
			holdsSections(t, got, map[string][]byte{".linux": linux})
			said, err := Contents(got, ".cmdline")
			if err != nil || strings.TrimSpace(string(said)) != "theirs" {
				t.Errorf("command line %q, %v", said, err)
			}
			ram, err := Contents(got, ".initrd")
			if err != nil || len(ram) < initrd+tail || len(ram)-initrd-tail >= 4 ||
				!bytes.Equal(ram[len(ram)-tail:], more) || bytes.Count(ram, []byte("i")) != initrd {
				t.Errorf("initramfs of %d bytes and %d: %d, %v", initrd, tail, len(ram), err)
			}
		}
	}
}

// holdsSections checks the section table of a program.
func holdsSections(t *testing.T, program []byte, want map[string][]byte) {
	t.Helper()
	f, err := pe.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	var address, offset uint32
	for _, s := range f.Sections {
		if s.VirtualAddress < address || s.Size > 0 && s.Offset < offset || int(s.Offset+s.Size) > len(program) {
			t.Errorf("section %s at %#x (%d in a file of %d) overlaps", s.Name, s.VirtualAddress, s.Offset, len(program))
		}
		address, offset = s.VirtualAddress+s.VirtualSize, max(offset, s.Offset+s.Size)
		if data := want[s.Name]; data != nil {
			if got, err := s.Data(); err != nil || !bytes.Equal(got[:s.VirtualSize], data) {
				t.Errorf("section %s has changed: %v", s.Name, err)
			}
		}
	}
	if top := f.OptionalHeader.(*pe.OptionalHeader64).SizeOfImage; top < address {
		t.Errorf("the image ends at %#x in memory, its last section at %#x", top, address)
	}
}
