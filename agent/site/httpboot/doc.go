// Package httpboot is the boot server of one segment: scripts for iPXE, kernels, unified kernel images and disk images
// over HTTP, for the machines of that segment alone.
//
// # URLs
//
//	GET  /boot/auto.ipxe?mac=M&arch=A   the boot order of the machine with this network card, as an iPXE script
//	GET  /boot/auto.efi?mac=M           the same for firmware with HTTP boot: an EFI program, or 404 for its disk
//	GET  /boot/self                     the boot order of the asking machine, by its address, as JSON
//	GET  /boot/TOKEN/script.ipxe        the files of one assignment; TOKEN is a capability and dies with it
//	GET  /boot/TOKEN/kernel, initrd, uki.efi
//	POST /boot/TOKEN/enrol              package desk
//	GET  /blob/SHA256                   a file of the site's cache, if a current assignment needs it
//	POST /phone-home/SECRET             a system without the agent reports that it is up
//	     CONNECT host:port              package relay
//
// Files have HEAD, ranges and ETags. Any host on the segment can read all of it: nothing here is a secret but SECRET,
// of which the server knows the digest alone.
//
// # Sources of truth
//
// The View that was set last. It is replaced at once; a request is answered by one View from its start to its end. A
// transfer that is under way when an assignment changes goes on: a system that was booted by an expired token can't
// enrol.
//
// # Failure handling
//
// A blob that isn't here yet is sent while it comes in from the controller. When that fails the connection is closed
// before the end, so that no client takes a part for the whole. Connections are bounded, in all and by source; so are
// the files that are being sent. A machine that takes nothing for a minute is dropped.
package httpboot
