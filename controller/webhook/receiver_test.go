package webhook_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/ingot-metal/ingot/internal/task"
)

// authority signs the certificates of receivers.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	a.cert = signed(t, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of the test"}, IsCA: true,
		BasicConstraintsValid: true,
		NotBefore:             time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign,
	}, nil, a.key, a.key)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func signed(t *testing.T, template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// issue makes a certificate of a server; change may spoil it.
func (a *authority) issue(t *testing.T, name string, change ...func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Minute),
		NotAfter: time.Now().Add(time.Minute),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, c := range change {
		c(template)
	}
	key := newKey(t)
	return tls.Certificate{Certificate: [][]byte{signed(t, template, a.cert, key, a.key).Raw}, PrivateKey: key}
}

// receiver is an HTTPS server on loopback that keeps its requests.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	got  []*http.Request
	body []byte
}

func newReceiver(t *testing.T, config *tls.Config, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		r.got, r.body = append(r.got, q), body
		r.mu.Unlock()
		if answer != nil {
			answer(w, q)
		}
	}))
	r.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes fail here on purpose
	if config == nil {
		r.Start()
	} else {
		r.TLS, r.EnableHTTP2 = config, true
		r.StartTLS()
	}
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) requests() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*http.Request(nil), r.got...)
}

// at is the receiver's address under another name.
func (r *receiver) at(t *testing.T, name string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(r.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return "https://" + net.JoinHostPort(name, port) + "/hook?key=hunter2"
}

// names resolves the test's names, and no others.
func names(t *testing.T, known map[string][]string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	task.Background("names", func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if out, err := answer(buf[:n], known); err == nil {
				_, _ = conn.WriteTo(out, from) // a lost answer fails the test by its time
			}
		}
	})
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func answer(query []byte, known map[string][]string) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	if len(m.Questions) != 1 {
		return nil, errors.New("not one question")
	}
	q := m.Questions[0]
	list, ok := known[strings.TrimSuffix(q.Name.String(), ".")]
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	if !ok {
		m.RCode = dnsmessage.RCodeNameError
	}
	for _, text := range list {
		addr := netip.MustParseAddr(text)
		h := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 0}
		switch {
		case addr.Is4() && q.Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: addr.As4()}})
		case addr.Is6() && q.Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
		}
	}
	return m.Pack()
}
