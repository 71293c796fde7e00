// Package installer is the role of a netbooted system: it runs from memory, for one operation, and may overwrite disks.
//
// # Overview
//
// Run makes a key, shows the machine's TPM where there is one, and has the site's agent vouch for it. Then it runs an
// ordinary agent in the role installer, which reaches the controller through the site's boot server.
//
// # Sources of truth
//
// The assignment at the site, and the controller's word on the first key. The boot token, which came on the kernel's
// command line, is no secret and proves nothing.
//
// # State model
//
// Everything is in memory, and ends with the boot. A restart of the process within one boot finds key and identity
// again, and with them the state of the command that was begun.
//
// # Failure handling
//
// A site agent that does not answer is asked again, for ever. A final refusal (ENROLMENT_CONTESTED, an expired token, a
// machine at another place than recorded) stops the installer: it prints that on the console and waits to be switched
// off. It neither asks again nor reboots, because both would end in the same place.
package installer
