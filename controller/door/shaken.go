package door

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
)

// Shaken are the gRPC credentials of a server behind a Listener, which has made the handshakes.
type Shaken struct{}

var _ credentials.TransportCredentials = Shaken{}

var errNotShaken = errors.New("the connection has made no handshake for HTTP/2")

// ServerHandshake implements credentials.TransportCredentials.
func (Shaken) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
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
func (Shaken) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errNotShaken
}

// Info implements credentials.TransportCredentials.
func (Shaken) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (s Shaken) Clone() credentials.TransportCredentials { return s }

// OverrideServerName implements credentials.TransportCredentials. It does nothing.
func (Shaken) OverrideServerName(string) error { return nil }
