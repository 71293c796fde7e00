package secret

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// Cluster is what it takes to speak to the API server of a cluster: a bearer token, or a client certificate and its
// key.
type Cluster struct {
	Token          string `json:"t,omitempty"`
	CertificatePEM []byte `json:"c,omitempty"`
	KeyPEM         []byte `json:"k,omitempty"`
}

// String and GoString keep it out of logs.
func (Cluster) String() string { return "[sealed]" }

// GoString keeps it out of logs too.
func (Cluster) GoString() string { return "[sealed]" }

// Kind is "token", "certificate", or empty for neither.
func (c Cluster) Kind() string {
	switch {
	case c.Token != "":
		return "token"
	case len(c.CertificatePEM) > 0:
		return "certificate"
	}
	return ""
}

func clusterName(ref string) string { return "cluster\x00" + ref }

// SealCluster seals credentials under their cluster's name.
func (b *Box) SealCluster(ref string, c Cluster) []byte {
	raw, _ := json.Marshal(c) // a string and bytes always serialize
	return b.Seal(clusterName(ref), raw)
}

// OpenCluster opens credentials that were sealed under this name; ErrSealed where that is not possible.
func (b *Box) OpenCluster(ref string, sealed []byte) (Cluster, error) {
	raw, err := b.Open(clusterName(ref), sealed)
	if err != nil {
		return Cluster{}, err
	}
	var c Cluster
	if err := json.Unmarshal(raw, &c); err != nil {
		return Cluster{}, fmt.Errorf("parse credentials: %w", ErrSealed)
	}
	return c, nil
}

// BootstrapSecret makes the secret of an enrolment token out of the sealing key: 256 bits, the same for the same token
// as long as that key is. So a request for a token can be repeated though only a hash of the secret is stored.
func (b *Box) BootstrapSecret(tokenID string) string {
	mac := hmac.New(sha256.New, b.derive)
	mac.Write([]byte("enrolment token\x00" + tokenID))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// MediaSecret makes the secret of the image that a machine boots from by virtual media, out of the sealing key: 256
// bits, of the assignment with this boot token alone. It is stored nowhere.
func (b *Box) MediaSecret(bootToken string) []byte {
	mac := hmac.New(sha256.New, b.derive)
	mac.Write([]byte("virtual media\x00" + bootToken))
	return mac.Sum(nil)
}

// Lengths of a bootstrap token's parts (kubeadm: [a-z0-9]{6}\.[a-z0-9]{16}).
const (
	joinTokenID     = 6
	joinTokenSecret = 16
)

// JoinToken derives the bootstrap token of one join from the sealing key. It is the same for the same join and key, so
// that it is stored nowhere.
func (b *Box) JoinToken(join string) (id, secret string) {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	out := make([]byte, 0, joinTokenID+joinTokenSecret)
	for round := byte(0); len(out) < cap(out); round++ {
		mac := hmac.New(sha256.New, b.derive)
		mac.Write([]byte{round})
		mac.Write([]byte("join token\x00" + join))
		for _, v := range mac.Sum(nil) {
			// Bytes beyond the last whole multiple would make some letters likelier than others.
			if int(v) < 256-256%len(letters) && len(out) < cap(out) {
				out = append(out, letters[int(v)%len(letters)])
			}
		}
	}
	return string(out[:joinTokenID]), string(out[joinTokenID:])
}
