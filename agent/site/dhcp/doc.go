// Package dhcp assigns addresses to the machines of a segment and sends boot options to their firmware. It is a DHCPv4
// server (RFC 2131). Or it is only the part for booting (proxyDHCP, of the PXE specification 2.1), beside a server that
// assigns the addresses.
//
// # Sources of truth
//
// What a machine boots: the table of assignments, asked anew for every packet, so that a replaced document counts from
// the next packet on. Who has which address: the pool of package lease, and its store; an acknowledgement leaves only
// after the store has the lease.
//
// # How it works
//
// One Server serves one network device: the segment on it, and those behind relays that send to it. One task reads
// requests in batches. For each batch it decides, in memory; saves the changed leases, all at once; then sends the
// answers. So a flush of the disk is paid once for as many clients as were waiting. Everything between the bytes that
// came and the bytes that go is in functions without I/O: Parse reads a packet, handler decides, reply writes.
//
// A second task looks at what others do on the wire, through a packet socket: answers of other DHCP servers, and ARP
// answers of cards that use addresses without a lease. It asks for both: a DISCOVER at start and every few minutes, and
// ARP probes of the addresses that come next.
//
// # Who gets what
//
//	                       full server                  proxy
//	to boot (or unknown,   an address and a boot file   the boot file
//	and discovery: boot)
//	from disk, or unknown  an address                   nothing, or word to go on
//
// A machine that gets no boot file goes on to its disk. Firmware is told to, for otherwise UEFI would wait a minute or
// more for a better offer: PXE by a boot menu whose one entry is the local disk, HTTP boot by the name of a file that
// is not there. A proxy tells only machines that it knows. The boot file is that of the asking program: iPXE gets an
// HTTP script, PXE firmware an iPXE over TFTP, firmware that boots over HTTP a unified kernel image.
//
// # Failures
//
// A store that cannot save: no acknowledgement goes out, the client asks again. A device that disappears ends Run with
// an error; the caller starts it again. The memory that other hosts can fill is bounded. A request through a relay that
// is not listed is refused, for it could come from anywhere.
package dhcp
