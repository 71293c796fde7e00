package gpt_test

import (
	"encoding/binary"
	"hash/crc32"
)

// seal makes the checksums right, so that fuzzing gets past them.
func seal(head []byte) {
	h := head[512:]
	count, size, at := binary.LittleEndian.Uint32(h[80:]), binary.LittleEndian.Uint32(h[84:]),
		binary.LittleEndian.Uint64(h[72:])
	if n := uint64(count) * uint64(size); n < 1<<19 && at < 1024 {
		binary.LittleEndian.PutUint32(h[88:], crc32.ChecksumIEEE(head[at*512:at*512+n]))
	}
	length := binary.LittleEndian.Uint32(h[12:])
	if length > 512 {
		return
	}
	binary.LittleEndian.PutUint32(h[16:], 0)
	binary.LittleEndian.PutUint32(h[16:], crc32.ChecksumIEEE(h[:length]))
}
