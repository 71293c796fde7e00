// Package ipmi speaks IPMI 2.0 over RMCP+ to one BMC: power, boot device of the next boot, identify light, sensors,
// event log, and serial over LAN.
//
// Packets, keys and records are go-ipmi's. The steps of opening a session are taken here one by one, because there
// two things must not happen: a refused password must not be tried again with another cipher suite, and the reason must
// not get lost. Cipher suites are 17 (SHA-256) and, where a BMC has no 17, 3 (SHA-1); both authenticate and encrypt
// (IPMI 2.0 table 22-20). A wrong password mostly never reaches the BMC: its answer to RAKP message 1 is keyed with the
// right one, and shows it. The privilege asked for is Operator: nothing here needs more.
//
// RMCP+ proves each side to the other by the password alone; there is no certificate. Anybody who can ask a BMC gets a
// hash of the password to guess at (IPMI 2.0, 13.28: RAKP message 2). Keep BMCs on a network of their own.
package ipmi
