// Package discovery finds the BMCs that answer at some addresses, and the machines that they report.
//
// An address is asked without credentials first: for a Redfish service root, and with an IPMI presence ping. Only
// addresses that answer as a BMC get a log-in, once, in one protocol, and only where the credentials are for it. While
// no BMC has accepted them, no more log-ins are under way than may still be refused. After three refusals in a row they
// are sent to no other.
//
// A BMC's claims are accepted as far as they are unique: a claim that another BMC makes too, or one beyond the
// possible, is a problem.
package discovery
