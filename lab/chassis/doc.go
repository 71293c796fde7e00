// Package chassis is a computer as it stands in a rack: power supply, firmware with its boot order, disks, a network
// card on a switch, a serial port. In it runs a QEMU machine of package vm while the power is on.
//
// # Sources of truth
//
// Power is on while the QEMU process lives. Disks and firmware variables are files in the chassis' directory and
// outlast it. The device of the next boot is kept here, because QEMU only knows an order: the chassis sets the order
// before a start or reset and takes it back when the firmware has read it. A warm reset of a BIOS machine is two resets
// in a row (see package vm). So "has read it" means 1.5 s without a reset, well below the time of the fastest boot.
//
// # Failure
//
// A process that is killed takes its machines with it. ForceOff flushes what QEMU holds of a disk image first;
// PullPlug doesn't.
package chassis
