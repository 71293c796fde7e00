// Package ca issues the certificates of agents and of the controller's listeners, and keeps the key that signs
// grants.
//
// # Overview
//
// New opens a directory of keys, making it at the first start, and signs with the software CA of
// github.com/smallstep/certificates (cas/softcas) behind Authority. Nothing else of that project is in the
// program: no listener, no provisioner, no database, no renewal, no SCEP, no client of a cloud. Who may have a
// certificate is decided before SignAgent is called.
//
// # Sources of truth
//
// The directory holds the generations of the CA, each a root and an intermediate, and the grant key. Which of them are
// in force is the database's word, which Follow brings. The list of valid certificates is not here: a certificate whose
// fingerprint the controller's database does not know opens no session, whatever its signature. Revocation is a mark in
// that database that the listeners check at every handshake. There is no renewal beside SignAgent. Several controllers
// of one fleet use copies of one directory.
//
// Of a certificate request only the public key is used. Subject, names, usages and times are set here.
//
// # State model
//
//	DIR/.lock               held while the directory is opened or made
//	DIR/.making-*           keys being made; worth nothing, removed at the next start
//	DIR/v1/root.{crt,key}
//	DIR/v1/intermediate.{crt,key}
//	DIR/v1/grant.key
//	DIR/v2/…                the same of the next generation without a grant key, and cross.crt
//
// All five files are written and synced under a temporary name that one rename turns into v1. So v1 is whole or absent
// unless it was changed by hand. The root key is needed only to make another intermediate; it may be moved away from
// the machine, and New then works without it. A rotation needs it back.
//
// # Rotation
//
// Next makes a generation: a root, an intermediate, and certificates of this intermediate by the roots before it. With
// those a listener proves itself to who trusts an old root alone, before and after the old root is withdrawn: no
// message has to arrive at one moment. A generation signs when it has been known for Settle. No agent connects by a
// withdrawn one; it stays valid for a new enrolment until the grace is over.
//
// # Failure handling
//
// A crash while the directory is made leaves a .making-* directory that no certificate was ever signed with. New
// removes it and starts again. A v1 that lacks a file, or has keys that don't match their certificates, or that others
// can read, is refused. The error names the file: making new keys would lock every agent out. Leaves never outlast the
// intermediate; when it has less than a requested lifetime left they are cut short, and when it has expired signing
// fails.
//
// An external step-ca is not supported.
package ca
