package erase

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
)

// SANITIZE STATUS EXT and its output (ACS-4, 7.32.3 and 7.32.10): the COUNT register has the state of the last
// sanitize, the LBA register its progress in 65,536ths. A drive whose sanitize has failed aborts the command.
const (
	ataSanitizeDevice = 0xb4
	sanitizeStatusExt = 0x0000
	ataSanitizing     = 1 << 14
)

// awaitATASanitize waits for a sanitize that was ordered before. Until it ends the drive aborts nearly every command,
// those of the security feature set too, and cannot be read (ACS-4, 4.16).
func (c Config) awaitATASanitize(ctx context.Context, out *Evidence) error {
	p := c.Disk.ATA()
	if p == nil {
		return nil
	}
	id := make([]byte, 512)
	if err := p.ATA(ATACommand{Command: ataIdentify, Data: id, In: true, Timeout: quick}); err != nil {
		return nil // no ATA drive, or the methods report the drive's error
	}
	if binary.LittleEndian.Uint16(id[2*59:])&(1<<12) == 0 {
		return nil // no sanitize, and so none under way
	}
	for begun, waited := c.Clock.Now(), false; ; waited = true {
		var progress uint64
		var count uint16
		err := p.ATA(ATACommand{
			Command: ataSanitizeDevice, Feature: sanitizeStatusExt, Ext: true, Timeout: quick, LBA: &progress, Count: &count,
		})
		if err != nil {
			out.Notes = append(out.Notes, fmt.Sprintf("the drive does not tell of its last sanitize, which may have failed: %v",
				err))
			return nil
		}
		if count&ataSanitizing == 0 {
			if waited {
				out.Notes = append(out.Notes, "a sanitize that was under way has ended first")
			}
			return nil
		}
		c.Progress(int(progress&0xffff)*100>>16, "sanitize")
		if limit := c.deviceTime(0); c.Clock.Now().Sub(begun) > limit {
			return fmt.Errorf("%w: the sanitize takes longer than %s", ErrNotErased, limit)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.Clock.After(time.Second):
		}
	}
}
