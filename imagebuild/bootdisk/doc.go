// Package bootdisk builds disk images that boot on BIOS and on UEFI machines: a GUID partition table, boot code, and an
// EFI system partition from which both kinds of firmware load the same kernel. For Debian there is a root file system.
//
// # Overview
//
// No loop device and no mount is needed: file systems are made in files (mformat and mcopy of mtools, mke2fs -d) and
// joined while the image is compressed. The BIOS starts gptmbr.bin, which starts syslinux on the partition with the
// attribute "legacy BIOS bootable"; UEFI starts systemd-boot.
//
// The partition table has free entries and the image no partition for the machine's own state: an installer adds
// that one, labelled pid1.StateLabel, at the end of the disk that it writes to.
//
// # Reproducible
//
// The same inputs give the same bytes of a tiny image. A Debian image holds inodes whose change times are those of the
// build.
package bootdisk
