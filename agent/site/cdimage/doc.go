// Package cdimage lays out the image of a CD that a BMC attaches to a machine: it boots one kernel and initramfs, by
// UEFI and by BIOS. Nothing of it is stored. An image is a list of parts, in memory or in existing files, that are put
// together during a read at any offset.
//
// The volume is plain ISO 9660 (ECMA-119, level 1) with a boot catalogue (El Torito 1.0). Under UEFI the firmware finds
// a FAT file system in it (UEFI 2.10, 13.3.2.1) with a unified kernel image. Under BIOS it loads Debian's isolinux,
// which reads kernel and initramfs out of the volume.
package cdimage
