package client_test

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/api/client"
)

// TestHandshakes makes real ones: one that only breaks off may be tried again, and one that cannot succeed may not.
func TestHandshakes(t *testing.T) {
	t.Parallel()
	stranger := httptest.NewUnstartedServer(http.NotFoundHandler())
	stranger.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes
	stranger.StartTLS()
	t.Cleanup(stranger.Close)
	// reach passes what the client has said on to a server whose certificate it has no root for.
	reach := func(hello []byte, answered func(server net.Conn)) {
		server, err := net.Dial("tcp", stranger.Listener.Addr().String())
		if err != nil {
			return
		}
		defer server.Close()
		if _, err := server.Write(hello); err == nil {
			answered(server)
		}
	}
	for name, c := range map[string]struct {
		serve func(conn net.Conn, hello []byte)
		again bool
	}{
		"breaks off with nothing said": {func(net.Conn, []byte) {}, true},
		"breaks off by a reset":        {func(conn net.Conn, _ []byte) { _ = conn.(*net.TCPConn).SetLinger(0) }, true},
		"breaks off amid the server's words": {func(conn net.Conn, hello []byte) {
			reach(hello, func(server net.Conn) {
				said := make([]byte, 64<<10)
				n, _ := server.Read(said) // nothing read is nothing said
				_, _ = conn.Write(said[:n/2])
			})
		}, true},
		"another root": {func(conn net.Conn, hello []byte) {
			reach(hello, func(server net.Conn) {
				go io.Copy(server, conn)
				_, _ = io.Copy(conn, server)
			})
		}, false},
		"no TLS": {func(conn net.Conn, _ []byte) {
			_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n") // the client may be gone
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					hello := make([]byte, 64<<10)
					if n, err := conn.Read(hello); err == nil {
						c.serve(conn, hello[:n])
					}
					conn.Close()
				}
			}()
			conn, err := client.Dial(client.Config{Server: l.Addr().String(), Token: "x", Patience: -1})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, err = baremetalv1.NewAdminServiceClient(conn).GetServerInfo(t.Context(), &baremetalv1.GetServerInfoRequest{})
			if err == nil || client.Transient(err) != c.again {
				t.Error(err)
			}
		})
	}
}
