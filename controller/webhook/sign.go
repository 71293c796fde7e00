package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks (github.com/standard-webhooks/standard-webhooks, specification).
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
)

const (
	secretPrefix = "whsec_"
	// secretSize is within the 24 to 64 bytes of the specification.
	secretSize = 32
)

// Secret signs requests. It never prints itself.
type Secret []byte

// String keeps it out of logs.
func (Secret) String() string { return "[secret]" }

// GoString keeps it out of logs too.
func (Secret) GoString() string { return "[secret]" }

// NewSecret makes a secret.
func NewSecret() Secret {
	s := make(Secret, secretSize)
	rand.Read(s) //nolint:errcheck // crypto/rand.Read never fails since Go 1.24
	return s
}

// Shown is the secret as its receiver is to keep it.
func (s Secret) Shown() string { return secretPrefix + base64.StdEncoding.EncodeToString(s) }

// Sign returns the value of the signature header: one signature for each secret.
func Sign(secrets []Secret, id string, at time.Time, body []byte) string {
	out := make([]string, 0, len(secrets))
	for _, s := range secrets {
		mac := hmac.New(sha256.New, s)
		// A hash never fails to be written to.
		_, _ = fmt.Fprintf(mac, "%s.%s.", id, timestamp(at))
		_, _ = mac.Write(body)
		out = append(out, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(out, " ")
}

func timestamp(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
