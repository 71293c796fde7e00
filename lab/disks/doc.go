// Package disks tries images and erasures on random machines: their disks, the orders and the faults are drawn from a
// seed.
//
// # Overview
//
// A run draws the disks of a machine, an order with a disk rule, and the faults. Disks differ in sizes and in sectors
// of 512 and 4096 bytes. There are two paths to one disk, serial numbers that two disks have, and missing names. The
// executors of the agent work on it, down to the calls that read and write a disk, which package disktest takes.
// Afterwards a judge reads every byte of every disk.
//
// # Checks
//
// No byte of a disk other than the one that the rule means has changed. A disk has no partition table, at neither end,
// unless the whole image is there. The result must match the full read. The judge has a parser of its own, made from
// the UEFI Specification 2.10, chapter 5.
//
// # Short and long
//
// `make test` runs a few seeds; `make test-disks` runs 500, and goes on where it was stopped.
package disks
