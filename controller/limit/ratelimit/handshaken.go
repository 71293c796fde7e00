package ratelimit

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
)

// Handshaken are the gRPC credentials of a server behind a Listener, which has made the handshakes.
type Handshaken struct{}

var _ credentials.TransportCredentials = Handshaken{}

var errNotShaken = errors.New("the connection has made no handshake for HTTP/2")

// ServerHandshake implements credentials.TransportCredentials.
func (Handshaken) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	t, ok := conn.(*tls.Conn)
	if !ok {
		return nil, nil, errNotShaken
	}
	state := t.ConnectionState()
	if !state.HandshakeComplete || state.NegotiatedProtocol != "h2" {
		return nil, nil, errors.Join(errNotShaken, conn.Close())
	}
	return conn, credentials.TLSInfo{
		State: state, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

// ClientHandshake implements credentials.TransportCredentials. It always fails.
func (Handshaken) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errNotShaken
}

// Info implements credentials.TransportCredentials.
func (Handshaken) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (s Handshaken) Clone() credentials.TransportCredentials { return s }

// OverrideServerName implements credentials.TransportCredentials. It does nothing.
func (Handshaken) OverrideServerName(string) error { return nil }
