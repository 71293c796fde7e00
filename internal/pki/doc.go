// Package pki holds the keys, certificates, tokens and signatures that a controller and an agent exchange, in
// the one form that both read and write.
//
// # Overview
//
//   - Keys and certificates: ECDSA P-256, PKCS #8 and PEM; files are replaced atomically and are durable when
//     the function that stores them returns.
//   - Identity: an agent's certificate carries exactly one URI SAN, spiffe://ingot/agent/<agent_id>. Nothing
//     else in a certificate identifies it; the CSR's own wishes are ignored by the CA.
//   - Bundle: the one string that an operator carries to a machine. It pins the CA by hash, so the first
//     connection is already verified.
//   - Re-enrolment proof: a signature by an expired key over this very TLS connection and the new key.
//   - Grants: the controller's signed permission to start one command.
//
// # Sources of truth
//
// A certificate proves an identity, never a right to connect: the controller's database decides whether a fingerprint
// is known and not revoked. A bundle's secret proves nothing until the controller has compared it with its stored hash.
//
// # Time
//
// Machines boot with clocks that are hours or years behind. Certificates are backdated by 2 h, and an agent
// checks them against EffectiveNow of everything that it knows to be in the past.
package pki
