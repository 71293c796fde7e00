// Package tpmdevice uses the TPM of the machine that it runs on, to prove the machine's identity.
//
// # Overview
//
// Open makes two transient keys in the TPM. The endorsement key, by the TCG's default template, is the same each time.
// The attestation key, in the null hierarchy, is new at each boot. Activate releases a secret that was encrypted to
// both. Package internal/tpm describes what that proves.
//
// # State model
//
// Nothing is stored in the TPM: no persistent handle, no NV index, no change of an authorization. Transient keys go
// with Close, or with the process where the kernel's resource manager (/dev/tpmrm0) is used.
package tpmdevice
