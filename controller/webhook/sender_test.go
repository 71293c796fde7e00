package webhook_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const name = "hooks.example.org"

// anyhow stands for a problem with several possible texts. In TLS 1.3 a receiver asks for a certificate when the
// handshake is over for us. HTTP/2 may be first to notice that it has hung up.
const anyhow = "anyhow"

var body = []byte(`{"specversion":"1.0"}`)

func send(t *testing.T, s *webhook.Sender, url string, secrets ...webhook.Secret) webhook.Result {
	t.Helper()
	t.Cleanup(s.Close)
	r, err := s.Send(t.Context(), webhook.Request{URL: url, EventID: "evt-1", Body: body, Secrets: secrets})
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	if strings.Contains(r.Problem, "hunter2") {
		t.Errorf("the key in the address is told: %s", r.Problem)
	}
	return r
}

// TestWhatIsSent: a POST that the public library of Standard Webhooks accepts, over HTTP/2, to a receiver whose
// certificate is of an authority that the configuration names.
func TestWhatIsSent(t *testing.T) {
	ca := newAuthority(t)
	rec := newReceiver(t, &tls.Config{Certificates: []tls.Certificate{ca.issue(t, name)}},
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	old, fresh := webhook.NewSecret(), webhook.NewSecret()
	s := webhook.NewSender(webhook.SenderConfig{
		Policy: webhook.Policy{AllowLoopback: true}, Roots: ca.pool(),
		Resolver: names(t, map[string][]string{name: {"127.0.0.1"}}), UserAgent: "ingot/test",
	})
	if got := send(t, s, rec.at(t, name), fresh, old); got != (webhook.Result{Status: http.StatusNoContent}) {
		t.Fatalf("%+v", got)
	}
	q := rec.requests()[0]
	if q.Method != http.MethodPost || q.ProtoMajor != 2 || q.URL.String() != "/hook?key=hunter2" ||
		string(rec.body) != string(body) || q.ContentLength != int64(len(body)) {
		t.Errorf("%s %s %s, %q", q.Method, q.URL, q.Proto, rec.body)
	}
	for key, want := range map[string]string{
		"Content-Type": "application/cloudevents+json; charset=utf-8", "User-Agent": "ingot/test", "Webhook-Id": "evt-1",
		"Accept-Encoding": "", "Authorization": "", "Cookie": "",
	} {
		if got := q.Header.Get(key); got != want {
			t.Errorf("%s: %q", key, got)
		}
	}
	for _, secret := range []webhook.Secret{old, fresh} {
		lib, err := standardwebhooks.NewWebhook(secret.Shown())
		if err != nil {
			t.Fatal(err)
		}
		if err := lib.Verify(rec.body, q.Header); err != nil {
			t.Error(err)
		}
	}
}

// TestCertificates: a receiver without a valid proof of its identity gets no event, and the try has the reason.
func TestCertificates(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	past := func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	}
	future := func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
	}
	client := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }
	nameless := func(c *x509.Certificate) { c.DNSNames, c.Subject.CommonName = nil, name }
	with := func(c tls.Certificate) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{c}} }
	old := with(ca.issue(t, name))
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	asking := with(ca.issue(t, name))
	asking.ClientAuth = tls.RequireAnyClientCert
	for what, c := range map[string]struct {
		config  *tls.Config
		problem string
	}{
		"of our authority":     {with(ca.issue(t, name)), ""},
		"for every name below": {with(ca.issue(t, "*.example.org")), ""},
		"of another authority": {with(other.issue(t, name)), "TLS: x509: certificate signed by unknown authority"},
		"for another name": {with(ca.issue(t, "other.example.org")),
			"TLS: x509: certificate is valid for other.example.org, not hooks.example.org"},
		"for a name in its title": {with(ca.issue(t, "", nameless)),
			"TLS: x509: certificate relies on legacy Common Name field"},
		"expired": {with(ca.issue(t, name, past)), "TLS: x509: certificate has expired"},
		"not yet valid": {with(ca.issue(t, name, future)),
			"TLS: x509: certificate has expired or is not yet valid"},
		"for clients": {with(ca.issue(t, name, client)),
			"TLS: x509: certificate specifies an incompatible key usage"},
		"of a receiver of TLS 1.1": {old, "TLS: the receiver refuses: tls: protocol version not supported"},
		"asks for ours":            {asking, anyhow},
		"none, no TLS":             {nil, "TLS: the receiver does not speak it"},
	} {
		t.Run(what, func(t *testing.T) {
			rec := newReceiver(t, c.config, nil)
			s := webhook.NewSender(webhook.SenderConfig{
				Policy: webhook.Policy{AllowLoopback: true}, Roots: ca.pool(),
				Resolver: names(t, map[string][]string{name: {"127.0.0.1"}}),
			})
			got := send(t, s, rec.at(t, name), webhook.NewSecret())
			if c.problem != anyhow && !strings.HasPrefix(got.Problem, c.problem) || got.OK() != (c.problem == "") || got.Gone {
				t.Errorf("%+v, want %q", got, c.problem)
			}
			if n := len(rec.requests()); (n == 1) != (c.problem == "") {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// TestNamesAreJudgedByWhatTheyResolveTo, when the connection is made: a name may resolve to another address the next
// time.
func TestNamesAreJudgedByWhatTheyResolveTo(t *testing.T) {
	ca := newAuthority(t)
	known := map[string][]string{
		"loopback.example.org":  {"127.0.0.1"},
		"loopback6.example.org": {"::1"},
		"metadata.example.org":  {"169.254.169.254"},
		"metadata6.example.org": {"fd00:ec2::254"},
		"local6.example.org":    {"fe80::1"},
		"private.example.org": {
			"10.255.255.1",
		},
		"alibaba.example.org": {"100.100.100.200"},
		"shared.example.org":  {"100.64.0.1"},
		"any.example.org":     {"0.0.0.0"},
		"nat64.example.org":   {"64:ff9b::a9fe:a9fe"},
		"mapped.example.org":  {"::ffff:127.0.0.1"},
		"mixed.example.org":   {"169.254.169.254", "127.0.0.1"},
	}
	rec := newReceiver(t, &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "*.example.org")}}, nil)
	resolver := names(t, known)
	for what, c := range map[string]struct {
		host    string
		policy  webhook.Policy
		problem string
	}{
		"loopback": {"loopback.example.org", webhook.Policy{},
			"refused: 127.0.0.1 is a loopback address"},
		"loopback, IPv6": {"loopback6.example.org", webhook.Policy{}, "refused: ::1 is a loopback address"},
		"loopback in IPv6": {"mapped.example.org", webhook.Policy{},
			"refused: 127.0.0.1 is a loopback address"},
		"loopback where it is allowed": {"loopback.example.org", webhook.Policy{AllowLoopback: true}, ""},
		"metadata": {"metadata.example.org", webhook.Policy{AllowLoopback: true},
			"refused: 169.254.169.254 is a link-local address"},
		"metadata in shared space": {"alibaba.example.org", webhook.Policy{},
			"refused: 100.100.100.200 is a metadata address"},
		"metadata, IPv6": {"metadata6.example.org", webhook.Policy{},
			"refused: fd00:ec2::254 is a metadata address"},
		"link-local": {"local6.example.org", webhook.Policy{},
			"refused: fe80::1 is a link-local address"},
		"private where it is refused": {"private.example.org", webhook.Policy{DenyPrivate: true},
			"refused: 10.255.255.1 is a private address"},
		"shared": {"shared.example.org", webhook.Policy{DenyPrivate: true},
			"refused: 100.64.0.1 is a private address"},
		"any": {"any.example.org", webhook.Policy{AllowLoopback: true, AllowLinkLocal: true},
			"refused: 0.0.0.0 is a unspecified or multicast address"},
		"metadata behind NAT64": {"nat64.example.org", webhook.Policy{AllowLinkLocal: true},
			"refused: 64:ff9b::a9fe:a9fe is a reserved address"},
		"one address of two":        {"mixed.example.org", webhook.Policy{AllowLoopback: true}, ""},
		"neither of two":            {"mixed.example.org", webhook.Policy{}, "refused: "},
		"a name that leads nowhere": {"nobody.example.org", webhook.Policy{}, "DNS: no such host"},
		"an address that is no name": {"169.254.169.254", webhook.Policy{AllowLoopback: true},
			"the address is refused: 169.254.169.254 is a link-local address"},
		"an address in other characters": {"0x7f000001", webhook.Policy{}, "DNS: no such host"},
	} {
		t.Run(what, func(t *testing.T) {
			before := len(rec.requests())
			s := webhook.NewSender(webhook.SenderConfig{Policy: c.policy, Roots: ca.pool(), Resolver: resolver,
				Timeout: 5 * time.Second})
			got := send(t, s, rec.at(t, c.host), webhook.NewSecret())
			if !strings.HasPrefix(got.Problem, c.problem) || got.OK() != (c.problem == "") {
				t.Errorf("%+v, want %q", got, c.problem)
			}
			if n := len(rec.requests()) - before; (n == 1) != (c.problem == "") {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// TestNoProxyIsAsked: the answer comes from the checked address.
func TestNoProxyIsAsked(t *testing.T) {
	proxy := newReceiver(t, nil, nil)
	for _, key := range []string{"HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy"} {
		t.Setenv(key, proxy.URL)
	}
	ca := newAuthority(t)
	rec := newReceiver(t, &tls.Config{Certificates: []tls.Certificate{ca.issue(t, name)}}, nil)
	s := webhook.NewSender(webhook.SenderConfig{
		Policy: webhook.Policy{AllowLoopback: true}, Roots: ca.pool(),
		Resolver: names(t, map[string][]string{name: {"127.0.0.1"}}),
	})
	if got := send(t, s, rec.at(t, name), webhook.NewSecret()); !got.OK() || len(proxy.requests()) != 0 ||
		len(rec.requests()) != 1 {
		t.Errorf("%+v, %d requests to the proxy", got, len(proxy.requests()))
	}
}

// TestAnswersAreBounded: neither a long head nor a long body is taken in.
func TestAnswersAreBounded(t *testing.T) {
	ca := newAuthority(t)
	config := &tls.Config{Certificates: []tls.Certificate{ca.issue(t, name)}}
	rec := newReceiver(t, config,
		func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Long", strings.Repeat("x", 200<<10)) })
	s := webhook.NewSender(webhook.SenderConfig{
		Policy: webhook.Policy{AllowLoopback: true}, Roots: ca.pool(),
		Resolver: names(t, map[string][]string{name: {"127.0.0.1"}}), Timeout: 5 * time.Second,
	})
	if got := send(t, s, rec.at(t, name), webhook.NewSecret()); got.OK() ||
		!strings.HasPrefix(got.Problem, "request failed: ") || len(got.Problem) > 200 {
		t.Errorf("%+v", got)
	}
}

// TestAStoppedControllerDecidesNothing: where the caller's time ends, there is no result that could count as a failure.
func TestAStoppedControllerDecidesNothing(t *testing.T) {
	ca := newAuthority(t)
	ctx, cancel := context.WithCancel(t.Context())
	rec := newReceiver(t, &tls.Config{Certificates: []tls.Certificate{ca.issue(t, name)}},
		func(_ http.ResponseWriter, q *http.Request) {
			cancel()
			<-q.Context().Done()
		})
	s := webhook.NewSender(webhook.SenderConfig{
		Policy: webhook.Policy{AllowLoopback: true}, Roots: ca.pool(),
		Resolver: names(t, map[string][]string{name: {"127.0.0.1"}}),
	})
	t.Cleanup(s.Close)
	r, err := s.Send(ctx, webhook.Request{URL: rec.at(t, name), EventID: "evt-1", Body: body,
		Secrets: []webhook.Secret{webhook.NewSecret()}})
	if err == nil || r != (webhook.Result{}) {
		t.Errorf("%+v, %v", r, err)
	}
}
