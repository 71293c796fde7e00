package imagebuild

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// DefaultModules are the modules a laboratory machine needs: disk, network, entropy, firmware variables, the
// power button, and the packet filter that network policies are written in.
func DefaultModules() []string {
	return []string{
		"virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "ext4", "efivarfs", "button", "evdev",
		"nf_tables", "nft_ct", "nft_reject_inet", "nft_limit",
	}
}

// ExtraModules are inserted at boot where the kernel has them: what disks of real machines need beside their
// controller's driver, what the firmware's devices need, and what network configurations are made of. No modprobe is
// there to do it when the kernel asks.
func ExtraModules() []string {
	return []string{
		"sd_mod", "vfat", "nls_cp437", "nls_ascii", "nls_utf8", "ipmi_devintf",
		"bonding max_bonds=0", "8021q",
	}
}

// HardwareModules are drivers of real machines' network cards, disks and management controllers.
func HardwareModules() []string {
	return []string{
		"e1000", "e1000e", "igb", "igc", "ixgbe", "i40e", "ice", "bnxt_en", "bnx2", "bnx2x", "mlx5_core",
		"tg3", "r8169", "ena", "gve", "atlantic", "qede", "sfc", "vmxnet3", "hv_netvsc", "hv_vmbus", "hv_storvsc",
		"xen_netfront",
		"nvme", "vmd", "ahci", "ata_piix", "megaraid_sas", "mpt3sas", "mpi3mr", "aacraid", "hpsa", "smartpqi", "virtio_scsi",
		"vmw_pvscsi", "qla2xxx", "lpfc",
		"mmc_block", "sdhci_pci", "sdhci_acpi", "xhci_pci", "usb_storage", "uas",
		"ipmi_si", "ipmi_ssif", "tpm_tis", "tpm_crb",
	}
}

// onDemandModules are those of root file systems that an installer adds files to, beside ext4, and of mirrors. They are
// inserted when an image has such a one: each costs memory, and btrfs a second of measuring.
func onDemandModules() []string { return []string{"xfs", "btrfs", "raid1"} }

type index struct {
	paths   map[string]string
	builtin map[string]bool
}

func indexModules(dir string) (index, error) {
	idx := index{paths: map[string]string{}, builtin: map[string]bool{}}
	list, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return idx, fmt.Errorf("read list of built-in modules: %w", err)
	}
	for _, p := range strings.Fields(string(list)) {
		idx.builtin[moduleName(p)] = true
	}
	err = filepath.WalkDir(filepath.Join(dir, "kernel"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(d.Name(), ".ko") {
			idx.paths[moduleName(path)] = path
		}
		return err
	})
	return idx, err
}

// moduleName returns the name that depends= uses: the file name without suffix, and with underscores.
func moduleName(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// readModule unpacks compressed modules: not every kernel can do it itself.
func readModule(path string) ([]byte, error) {
	tool, ok := map[string]string{".ko": "", ".xz": "xz", ".zst": "zstd"}[filepath.Ext(path)]
	switch {
	case !ok:
		return nil, fmt.Errorf("unknown suffix of %s", path)
	case tool == "":
		return os.ReadFile(path)
	default:
		return exec.Command(tool, "-dc", path).Output()
	}
}

// modinfo reads the section .modinfo: strings key=value that end with a zero byte. A key may come several times.
func modinfo(ko []byte) (map[string][]string, error) {
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		return nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, errors.New("no .modinfo section")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	fields := map[string][]string{}
	for field := range strings.SplitSeq(string(info), "\x00") {
		if key, value, ok := strings.Cut(field, "="); ok {
			fields[key] = append(fields[key], value)
		}
	}
	return fields, nil
}
