package installerenrol

// Request is what a netbooted system sends to be certified: POST <site>/boot/<token>/enrol, as JSON. Bytes are base64.
type Request struct {
	// CSR is a PKCS #10 request in DER.
	CSR                 []byte `json:"csr"`
	BootID              string `json:"boot_id"`
	HardwareFingerprint string `json:"hardware_fingerprint"`
	// MAC is that of the interface with the address that the request comes from.
	MAC    string `json:"mac"`
	Serial string `json:"serial"`
	// TPM is the machine's, nil where it has none.
	TPM *TPM `json:"tpm,omitempty"`
	// MediaProof is the result of mediaproof.Make, for a system that was started from an attached image.
	MediaProof []byte `json:"media_proof,omitempty"`
}

// TPM holds public areas (TPMT_PUBLIC) of keys and a certificate in DER; see fleet.v1.VouchInstallerRequest.
type TPM struct {
	EndorsementKey         []byte `json:"endorsement_key"`
	EndorsementCertificate []byte `json:"endorsement_certificate,omitempty"`
	AttestationKey         []byte `json:"attestation_key"`
}

// Challenge asks for the proof that the machine holds the TPM that it has shown. The certificate comes from
// enroll.v1 ActivateCredential.
type Challenge struct {
	// Sealed goes back as it is; CredentialBlob and EncryptedSeed are for the TPM.
	Sealed         []byte `json:"sealed"`
	CredentialBlob []byte `json:"credential_blob"`
	EncryptedSeed  []byte `json:"encrypted_seed"`
	// Addresses are host:port of the enrolment listeners, to be reached through Proxy.
	Addresses []string `json:"addresses"`
}

// Answer is what it gets, with status 200.
type Answer struct {
	// CertificateChainPEM has the leaf first. It is empty where there is a Challenge.
	CertificateChainPEM string `json:"certificate_chain_pem"`
	TrustBundlePEM      string `json:"trust_bundle_pem"`
	// FleetAddresses are host:port, to be reached through Proxy.
	FleetAddresses []string `json:"fleet_addresses"`
	// Proxy is the base URL of the site's boot server; it takes CONNECT to FleetAddresses and to nothing else.
	Proxy       string `json:"proxy"`
	AgentID     string `json:"agent_id"`
	MachineID   string `json:"machine_id"`
	OperationID string `json:"operation_id"`
	// GrantKeys are Ed25519 public keys.
	GrantKeys [][]byte `json:"grant_keys"`
	// Mode is installer or rescue.
	Mode string `json:"mode"`
	// Challenge is nil where the machine is certified.
	Challenge *Challenge `json:"challenge,omitempty"`
}

// Problem is the answer with any other status. 503 and 429 carry Retry-After and may be tried again; the others not:
// 409 is ENROLMENT_CONTESTED, 410 an expired token, 403 a machine at another place than the assignment's.
type Problem struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}
