package disks

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/ingot-metal/ingot/agent/disk/erase"
	"github.com/ingot-metal/ingot/agent/hwtest"
)

const (
	smartPatience = 10 * time.Second
	// Get Log Page (NVM Express Base Specification 2.0, 5.16): page 02h of the whole controller, 512 bytes.
	nvmeGetLogPage   = 0x02
	nvmeSMARTPage    = 0x02
	nvmeSMARTBytes   = 512
	nvmeAllOfIt      = 0xffffffff
	nvmeDwordsAt     = 16
	nvmeBytesOfDword = 4
	// SMART RETURN STATUS (ACS-3, 7.48.8): its signature stands in LBA (23:8), in and out.
	ataSMART        = 0xb0
	ataReturnStatus = 0xda
	ataSignature    = 0xc24f00
)

// SMART asks a disk how it is. It reads, and changes nothing.
func (s *Storage) SMART(path string) (h hwtest.Health, err error) {
	d, err := s.open(path, false)
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if q := d.NVMe(); q != nil {
		page := make([]byte, nvmeSMARTBytes)
		err := q.Admin(erase.AdminCommand{Opcode: nvmeGetLogPage, NSID: nvmeAllOfIt, Data: page, Timeout: smartPatience,
			CDW10: (nvmeSMARTBytes/nvmeBytesOfDword-1)<<nvmeDwordsAt | nvmeSMARTPage})
		if err != nil {
			return h, fmt.Errorf("read its health log: %w", err)
		}
		return hwtest.NVMeHealth(page), nil
	}
	if a := d.ATA(); a != nil {
		var lba uint64
		err := a.ATA(erase.ATACommand{Command: ataSMART, Feature: ataReturnStatus, Address: ataSignature, LBA: &lba,
			Timeout: smartPatience})
		if err != nil {
			return h, fmt.Errorf("ask for its SMART status: %w", err)
		}
		return hwtest.ATAHealth(lba)
	}
	return h, fmt.Errorf("%s is of no kind that says it", filepath.Base(path))
}
