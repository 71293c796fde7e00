package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent/transport"
)

// proxy answers one connection: it reads the request's head and then writes the answer.
func proxy(t *testing.T, answer string) (url string, asked <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	heads := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf, head := make([]byte, 1), ""
		for !strings.HasSuffix(head, "\r\n\r\n") {
			if _, err := c.Read(buf); err != nil {
				return
			}
			head += string(buf)
		}
		heads <- head
		fmt.Fprint(c, answer)
		io.Copy(c, c)
	}()
	return "http://" + l.Addr().String(), heads
}

func TestViaProxyTunnelsFromTheFirstByteOn(t *testing.T) {
	t.Parallel()
	// The other end's first bytes come in one packet with the proxy's answer.
	url, asked := proxy(t, "HTTP/1.1 200 Connected\r\n\r\nhello")
	dial, err := transport.ViaProxy(url, transport.NetDialer())
	if err != nil {
		t.Fatal(err)
	}
	c, err := dial(t.Context(), "controller.example:7443")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if head := <-asked; !strings.HasPrefix(head,
		"CONNECT controller.example:7443 HTTP/1.1\r\nHost: controller.example:7443\r\n") {
		t.Errorf("asked %q", head)
	}
	buf := make([]byte, 5)
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "hello" {
		t.Errorf("first bytes %q, %v", buf, err)
	}
	fmt.Fprint(c, "again")
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "again" {
		t.Errorf("then %q, %v", buf, err)
	}
}

func TestViaProxyRefused(t *testing.T) {
	t.Parallel()
	url, _ := proxy(t, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
	dial, err := transport.ViaProxy(url, transport.NetDialer())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dial(t.Context(), "elsewhere.example:1"); !errors.Is(err, transport.ErrProxy) ||
		!strings.Contains(err.Error(), "403") {
		t.Errorf("got %v", err)
	}
}

func TestViaProxyEndsWithItsContext(t *testing.T) {
	t.Parallel()
	url, _ := proxy(t, "")
	dial, err := transport.ViaProxy(url, transport.NetDialer())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50e6)
	defer cancel()
	if _, err := dial(ctx, "x:1"); err == nil {
		t.Error("a proxy that never answers made a connection")
	}
}

func TestParseProxy(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"http://192.0.2.1:8080": "192.0.2.1:8080", "http://site/": "site:80",
		"http://[2001:db8::1]:3128": "[2001:db8::1]:3128",
		"https://x:1":               "", "x:1": "", "http://": "", "http://u:p@x:1": "", "http://x:1/path": "",
		"http://x:1?a": "", "": "",
	} {
		got, err := transport.ParseProxy(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}
