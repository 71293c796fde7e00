// Package pid1 lets a static binary be the whole userland of a machine: process 1 of an initramfs that holds
// nothing else.
//
// # Overview
//
// The binary runs twice. Process 1 mounts the kernel's file systems, inserts the modules that the image lists, mounts
// the state disk and brings up the network (Setup). Then it starts itself again as a child that does the real work. It
// only waits, reaps orphans and answers the power button (Supervise). The kernel panics when process 1 ends, and a Go
// program can end in ways that recover doesn't see: a panic in any goroutine, a concurrent map write, the out-of-memory
// killer. In the child each of these costs a restart.
//
//	if pid1.IsInit() {
//		return pid1.Run(ctx, log, func(sys *pid1.System) error { return serve(ctx, sys.StateDir()) })
//	}
//
// With the kernel parameter ingot.role=installer there is no state disk: the state directory is memory, and the address
// comes by DHCP. System.Installer has the site and the operation for which the machine was booted.
//
// # Sources of truth
//
// The file system with the label of package imagelayout, mounted at StateDir, is all that lasts over a reboot. The rest
// of the root is memory. Its file NetworkFile, when present, holds the machine's name and address. Without it, the
// kernel parameter ingot.net=dhcp asks for one by DHCP, and process 1 keeps the lease. Its directory etc is mounted on
// /etc, so that a host name that was set later and the machine-id last as on any other system.
//
// # Failure handling
//
//   - The child ends with an error or a signal: it is started again after a delay, for ever.
//   - The child returns nil: the machine is powered off, or rebooted if that was asked for.
//   - The child asks for a reboot: it is told to end, and after a while the reboot goes on without it.
//   - Setup fails, for instance because no disk has the label: Run prints that on the console and reboots.
//   - Several file systems have the label: the one written last is used, and a line on the console names it.
//   - No DHCP server answers: an installer reboots after a minute; a host goes on and asks for ever.
//   - A module that can't be inserted is told on the console, and what needed it fails by itself.
//   - A module that has no device (ENODEV) or is there already (EEXIST) is no failure.
//   - Before a reboot the state disk is made read-only, or frozen when files on it are open for writing, so
//     that acknowledged data is on the disk.
package pid1
