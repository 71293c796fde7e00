package client

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	apiclient "github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/pki"
)

// Dial makes a connection with the published client; it does not wait for the server. Retry repeats calls, and the
// published client does not.
func Dial(t Target, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	cfg, err := tlsConfig(t)
	if err != nil {
		return nil, err
	}
	who, err := t.credentials()
	if err != nil {
		return nil, err
	}
	return apiclient.Dial(apiclient.Config{Server: t.Server, TLS: cfg, Credentials: who, Patience: -1}, opts...)
}

// Root is the root certificate that the target trusts, or its hash. Both are nil where it trusts the system's.
func (t Target) Root() (*x509.CertPool, *[sha256.Size]byte, error) {
	switch {
	case t.CAFile != "":
		pool, err := readRoots(t.CAFile)
		return pool, nil, err
	case t.CAHash != "":
		hash, err := parseHash(t.CAHash)
		return nil, &hash, err
	}
	return nil, nil, nil
}

func tlsConfig(t Target) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(t.Server)
	if err != nil {
		return nil, fmt.Errorf("server must be host:port: %w", err)
	}
	roots, hash, err := t.Root()
	if hash != nil {
		return pki.TLSConfigPinned(*hash, host, time.Now), err
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: host}, err
}

func readRoots(path string) (*x509.CertPool, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("read CA: %s holds no PEM certificate", path)
	}
	return pool, nil
}

func parseHash(s string) (hash [sha256.Size]byte, err error) {
	raw, err := hex.DecodeString(strings.ToLower(strings.TrimPrefix(s, "sha256:")))
	if err != nil || len(raw) != sha256.Size {
		return hash, fmt.Errorf("ca_hash must be %d hexadecimal digits", 2*sha256.Size)
	}
	return [sha256.Size]byte(raw), nil
}

// credentials are the token, or the sign-on; nil without either.
func (t Target) credentials() (credentials.PerRPCCredentials, error) {
	if t.Token != "" || t.Login == "" {
		if t.Token == "" {
			return nil, nil
		}
		return bearer(t.Token), nil
	}
	l, err := LoadLogin(t.Login)
	if err != nil || l == nil {
		return nil, err
	}
	return &bearerSource{path: t.Login, clock: clock.Real(), login: l}, nil
}

// Bearer is the bearer token of the target now; empty where it has none.
func (t Target) Bearer(ctx context.Context) (string, error) {
	who, err := t.credentials()
	if err != nil || who == nil {
		return "", err
	}
	md, err := who.GetRequestMetadata(ctx)
	return strings.TrimPrefix(md["authorization"], "Bearer "), err
}

// bearer is a token that leaves the process over TLS only.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return true }

// String keeps the token out of messages that print the value.
func (bearer) String() string { return "bearer token" }
