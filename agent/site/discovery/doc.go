// Package discovery finds the BMCs that answer at some addresses, and what machines they say they are of.
//
// An address is asked without credentials first: for a Redfish service root, and with an IPMI presence ping. Only what
// answers as a BMC is logged in to, once, in one protocol, and only where the credentials are for it. While no BMC has
// taken them, no more log-ins are under way than may still be refused; when three BMCs in a row have refused them, they
// are sent to no other.
//
// What a BMC says is believed as far as it stands alone: one that says what another one says too, or more than such a
// thing can have, gets a problem.
package discovery
