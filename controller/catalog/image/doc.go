// Package image brings files into the image catalogue: it fetches or receives them, and checks that they match their
// description and can be written. It converts formats that installers do not read, and adds the entry.
//
// # Sources of truth
//
// The catalogue in the database; a blob that no entry names is rubbish and goes. A file gets its name in the
// transaction that adds the entry, so there is never an entry without its file, whatever is killed when.
//
// # What an operating system's image must be
//
// A whole disk of 512-byte sectors with a GUID partition table at its start: what an installer writes must be able to
// boot, and its partition table is the last that is written. It is stored as it was given, raw or raw.zst; qcow2, gzip
// and xz are converted to raw.zst, the same bytes every time. A zstd stream needs a window of at most 32 MiB:
// installers have little memory.
//
// # Where it comes from
//
// A caller, a web server, or a registry of OCI (package oci). A server's redirects stay at its host, and every address
// is checked when it is dialled. Bytes without TLS or a digest do not count.
//
// # Failure handling
//
// A file that ends early or cannot be fetched is IMAGE_UNAVAILABLE, one with other bytes than announced
// IMAGE_DIGEST_MISMATCH. One that cannot be written is IMAGE_UNSUPPORTED, a full disk IMAGE_STORE_FULL. Nothing stays
// behind. Repeating a call is safe: the same image again changes nothing.
package image
