// Package oci opens the one file of an artefact in a registry (OCI distribution specification 1.1), as ORAS pushes it.
//
// # Trust
//
// Nothing from a registry without a proof by a digest. The manifest is compared with the digest in its reference, where
// that has one. The reader of the file compares it with the digest in the manifest. The sizes in the manifest are
// bounds, not facts.
//
// # Who is asked
//
// The registry in the reference over https, and the hosts of the configuration: a registry may send neither to another
// host for tokens or blobs, nor to http. Which addresses may be dialled is the transport's matter.
package oci
