// Package tpm proves that a machine holds a TPM's endorsement key, by credential activation. The controller and the
// installer share it; it does no I/O and needs no TPM.
//
// # The exchange
//
//  1. The installer sends the public areas of the TPM's endorsement key (EK) and of a fresh attestation key (AK), with
//     the request for a certificate (CSR). All three are public.
//  2. The controller draws a secret and encrypts it to the EK and the AK's name, as TPM2_MakeCredential does (TPM 2.0
//     Library, Part 1 "Credential Protection", Part 3 section 12.6). The secret and what it is for travel with it,
//     sealed with the controllers' own key, so that nothing is stored and any controller can check the answer.
//  3. The TPM releases the secret by TPM2_ActivateCredential (Part 3 section 12.5) only if both keys are loaded in it:
//     the seed is encrypted to the EK, and the AK's name is part of the derivation of the integrity key.
//  4. The installer answers over TLS with Proof: an HMAC by the secret over this connection's exported keying material
//     (RFC 8446 section 7.5), the digest of the key to certify, and the digest of the sealed challenge.
//
// # The binding
//
// A system between the installer and the controller sees and can replace everything but the secret. If it replaces the
// CSR in step 1, the sealed challenge names its own key, and the installer's proof is over another key: refused. If it
// ends TLS itself, the exported keying material differs on both sides: refused. A recorded proof is worth nothing on
// another connection. It cannot compute a proof, because it cannot activate the credential.
//
// # What it does not prove
//
// That the system which speaks is ours: any program that can use the machine's TPM can activate the credential. Nor
// that the EK is in a real TPM, unless a certificate of its vendor states it (VerifyCertificate).
package tpm
