package gpt

import (
	"bytes"
	"fmt"
)

// Patch is the difference between two heads: pieces of the old one, by offset. Applied to the new one it restores the
// old.
type Patch []Piece

// Piece is some bytes at an offset.
type Piece struct {
	Offset int    `json:"offset"`
	Bytes  []byte `json:"bytes"`
}

// pieceSize is how finely heads are compared.
const pieceSize = 512

// Undo makes the patch that leads from changed back to old. Both have the same length.
func Undo(old, changed []byte) Patch {
	var p Patch
	for at := 0; at < len(old); at += pieceSize {
		end := min(at+pieceSize, len(old))
		if !bytes.Equal(old[at:end], changed[at:end]) {
			p = append(p, Piece{Offset: at, Bytes: bytes.Clone(old[at:end])})
		}
	}
	return p
}

// Apply changes head in place.
func (p Patch) Apply(head []byte) error {
	for _, piece := range p {
		if piece.Offset < 0 || piece.Offset+len(piece.Bytes) > len(head) {
			return fmt.Errorf("apply patch: %d bytes at %d of %d", len(piece.Bytes), piece.Offset, len(head))
		}
		copy(head[piece.Offset:], piece.Bytes)
	}
	return nil
}
