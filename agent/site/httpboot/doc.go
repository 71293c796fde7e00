// Package httpboot is the boot server of one segment: scripts for iPXE, kernels, unified kernel images and disk images
// over HTTP, for the machines of that segment and nobody else.
//
// # URLs
//
//	GET  /boot/auto.ipxe?mac=M&arch=A   what the machine with this network card is to boot, as an iPXE script
//	GET  /boot/auto.efi?mac=M           the same for firmware with HTTP boot: an EFI program, or 404 for its disk
//	GET  /boot/self                     what the machine that asks is to boot, by its address, as JSON
//	GET  /boot/TOKEN/script.ipxe        the files of one assignment; TOKEN is a capability and dies with it
//	GET  /boot/TOKEN/kernel, initrd, uki.efi
//	POST /boot/TOKEN/enrol              package desk
//	GET  /blob/SHA256                   a file of the site's cache, if a current assignment needs it
//	POST /phone-home/SECRET             a system without the agent says that it is up
//	     CONNECT host:port              package relay
//
// Files have HEAD, ranges and ETags. Anybody on the segment can read all of it: nothing here is a secret but SECRET, of
// which the server knows the digest alone.
//
// # What is authoritative
//
// The View that was set last. It is replaced at once; a request is answered by one View from its start to its end.
// What is already on its way to a machine when an assignment changes goes on: a system that was booted by a token
// that has died since can't enrol.
//
// # Failure handling
//
// A blob that isn't here yet is sent while it comes in from the controller; when that fails the connection is closed
// before the end, so that nobody takes a part for the whole. Connections are bounded, in all and by source; so are
// the files that are being sent. A machine that takes nothing for a minute is dropped.
package httpboot
