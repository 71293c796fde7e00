// Package bmc drives machines through their baseboard management controllers: it is the provider "agent" of site
// agents, with the capabilities power, reboot and netboot.
//
// # Overview
//
// A BMC is one endpoint with one account, however many machines name it. Each has a link with its queue, the protocol
// that was found, the open session, the credentials in use, and the budget of failures. One request at a time goes to a
// BMC; different BMCs are driven in parallel.
//
// # Claims and evidence
//
// An accepted request is a claim. TurnOff, TurnOn and SetBootDevice return when the BMC has been read back, or fail
// within a bounded time. The reason is BMC_NO_EFFECT when it answers and the state does not follow, and BMC_UNREACHABLE
// when it does not answer. It is BMC_AUTH_FAILED when it refuses the credentials. A power cycle is off, read back, then
// on; each may be repeated, so a cycle that was interrupted goes on where it was. Cycle and reset are never used.
//
// # Budget
//
// Refused credentials are tried once. Then the link is parked for them, until their version changes or Unpark is
// called. Those refused with 401 are tried once more after half an hour, then after twice as long each time, up to a
// day: a BMC answers 401 while it starts, too. Credentials that were accepted last are tried once more after half a
// minute first, or after two minutes if the BMC was silent just before. Until then the BMC counts as unreachable. After
// three different refusals within half an hour nothing at all is tried for half an hour: a BMC may count failures by
// client address. A BMC that is silent is asked less and less often, up to once a minute. One that asks for a pause
// with 429 or 503 and Retry-After gets it, of a minute at most. See Budget. Unpark forgets what was refused; changing
// the credentials does without.
//
// # Endpoints
//
//	host, host:port            probed: Redfish over TLS first, then IPMI; what answers is remembered, and forgotten when
//	                           it does not fit any more. The port is for both.
//	redfish://host[:port]      Redfish over TLS, 443
//	ipmi://host[:port]         IPMI over RMCP+, 623
//	redfish+http://host[:port] Redfish without TLS, 80: for laboratories. It carries the password in the clear.
//
// An IPv6 address of a link needs the zone, which is an interface of the site agent: [fe80::1%eth0]. After a scheme
// the sign may be escaped, as in URLs: %25. Credentials are allowed for an address with its zone; no network covers it.
//
// After an endpoint of Redfish may follow the path of a system, /redfish/v1/Systems/NAME, where a service has several.
// Without it the one with the machine's MAC address, UUID or serial number is taken, else the only one that can be
// switched.
//
// # Boot device
//
// The override is written to the object that has it: the system, or its settings object. A setting that the next reset
// brings into effect is pending, or ordered where it can't be read before. The boot itself is the proof.
//
// # Certificates
//
// Most BMCs show a self-signed certificate. Where Config.RootCAs is set, it must be signed by one of those, for the
// name or address in the endpoint. Else the first certificate that a BMC shows is pinned: another one later is refused
// before any password is sent, until Unpark. A man in the middle at the very first contact is not noticed: on that day
// the management network is trusted. Pins are kept by Config.Memory; without one they last as long as the process.
//
// # Secrets
//
// Credentials come from Config.Credentials, stay in memory, and reach nothing but the BMC. Console output is scrubbed
// line by line before any reader gets it; see Redactor.
package bmc
