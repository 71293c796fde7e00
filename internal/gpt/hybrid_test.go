package gpt

import "testing"

// TestAHybridMBRStaysAsItIs: its protective entry must not reach over the others.
func TestAHybridMBRStaysAsItIs(t *testing.T) {
	t.Parallel()
	head := make([]byte, HeadSize)
	entries := head[446:510]
	entries[4], entries[8], entries[12] = 0xee, 1, 200
	entries[16+4], entries[16+9], entries[16+13] = 0x0c, 8, 1
	before := string(entries)
	growProtective(head, 1<<30)
	if string(entries) != before {
		t.Errorf("%x became %x", before, entries)
	}
	clear(entries[16:32])
	if growProtective(head, 1<<30); entries[15] != 0x40 {
		t.Errorf("a protective MBR alone: %x", entries)
	}
}
