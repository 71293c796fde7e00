// Package secret seals data that is stored in the database and must not be readable there: AES-256-GCM under a key that
// lies in a file beside the controller.
//
// # Sources of truth
//
// The key file: one key per line, 32 bytes in base64, # begins a comment. The first seals; all of them open, so a key
// is replaced by putting a new one before it and setting the secrets anew. Each sealed text names its key. Who loses
// the file loses the secrets and nothing else: they are set again.
//
// # Failure handling
//
// What was changed, moved to another name, or sealed with a key that is not in the file does not open: ErrSealed.
// Neither keys nor what was sealed ever stand in an error.
package secret
