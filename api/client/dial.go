package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// Config is the connection to a controller, and its credentials.
type Config struct {
	// Server is host:port of the gRPC listener.
	Server string
	// CAFile is a PEM file with the root that has signed the server's certificate. Empty: the system's roots.
	CAFile string
	// TLS, where it is set, is used as it is, in place of CAFile.
	TLS *tls.Config
	// Token is the bearer token. TokenFile holds one and nothing else; it is read for each call, so that a token can be
	// replaced under a program that runs.
	Token, TokenFile string
	// Credentials, where it is set, signs each call, in place of Token and TokenFile.
	Credentials credentials.PerRPCCredentials
	// Patience is how long a call is repeated while the controller is away; 0 means a minute, less than 0 not at all.
	Patience time.Duration
}

// Dial makes a connection; it does not wait for the server. Close it when it is not used any more.
func Dial(c Config, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	trust, err := c.trust()
	if err != nil {
		return nil, err
	}
	all := []grpc.DialOption{
		grpc.WithTransportCredentials(credentials.NewTLS(trust)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay:  200 * time.Millisecond,
				Multiplier: 1.6,
				Jitter:     0.2,
				MaxDelay:   2 * time.Second,
			},
			MinConnectTimeout: 5 * time.Second,
		}),
		// A controller that stands still keeps its connections open; only pings notice it. More often is refused.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithChainUnaryInterceptor(repeat(c.Patience)),
	}
	switch {
	case c.Credentials != nil:
		all = append(all, grpc.WithPerRPCCredentials(c.Credentials))
	case c.Token != "" || c.TokenFile != "":
		all = append(all, grpc.WithPerRPCCredentials(bearer{c.Token, c.TokenFile}))
	}
	conn, err := grpc.NewClient(c.Server, append(all, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", c.Server, err)
	}
	return conn, nil
}

func (c Config) trust() (*tls.Config, error) {
	if c.TLS != nil {
		return c.TLS, nil
	}
	host, _, err := net.SplitHostPort(c.Server)
	if err != nil {
		return nil, fmt.Errorf("the server must be host:port: %w", err)
	}
	out := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: host}
	if c.CAFile == "" {
		return out, nil
	}
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the root certificate: %w", err)
	}
	out.RootCAs = x509.NewCertPool()
	if !out.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read the root certificate: %s holds none in PEM", c.CAFile)
	}
	return out, nil
}

// bearer is a token, or the file that holds it.
type bearer struct{ token, file string }

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token := b.token
	if token == "" {
		raw, err := os.ReadFile(b.file)
		if err != nil {
			return nil, fmt.Errorf("read the token: %w", err)
		}
		token = strings.TrimSpace(string(raw))
	}
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return nil, errors.New("read the token: there must be one, and nothing else")
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return true }

// String keeps the token out of messages that print the value.
func (bearer) String() string { return "bearer token" }
