package config

import (
	"crypto/x509"
	"fmt"
	"github.com/ingot-metal/ingot/internal/weburl"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// SignOn is the provider of OpenID Connect that people sign on with.
type SignOn struct {
	// Issuer is its URL; empty means that there are no sign-ons, and tokens alone count.
	Issuer string `yaml:"issuer"`
	// ClientID and the secret in ClientSecretFile are the console's; without a secret it is a public client. CLIClientID
	// is that of `ingot login`, a public client with the device flow; empty means ClientID.
	ClientID         string `yaml:"client_id"`
	ClientSecretFile string `yaml:"client_secret_file"`
	CLIClientID      string `yaml:"cli_client_id"`
	// ConsoleURL is where browsers reach the console, such as https://ingot.example:8443: the provider sends people back
	// there. Empty: to the host that they came to, where tls.names has it.
	ConsoleURL string `yaml:"console_url"`
	// Audiences are further clients whose ID tokens count.
	Audiences []string `yaml:"audiences"`
	// Scopes are asked for beside openid. Empty: profile, email, groups and offline_access, where the provider has them.
	Scopes []string `yaml:"scopes"`
	// GroupsClaim and NameClaim are where an ID token has a person's groups, and its name for the audit log.
	GroupsClaim string `yaml:"groups_claim"`
	NameClaim   string `yaml:"name_claim"`
	// TokenLife bounds how long an ID token counts, whatever its own end.
	TokenLife Duration `yaml:"token_life"`
	// LastSignOn bounds the age of a person's last sign-on, or renewal of one. Until then that person's own tokens have
	// the person's roles; after it they open nothing.
	LastSignOn Duration `yaml:"last_sign_on"`
	// CAFile holds more authorities than those of the system, in PEM.
	CAFile string `yaml:"ca_file"`
}

func defaultSignOn() SignOn {
	return SignOn{GroupsClaim: "groups", NameClaim: "preferred_username", TokenLife: Duration{time.Hour},
		LastSignOn: Duration{day}}
}

func (c *Config) checkSignOn(k *checker) {
	s := c.SignOn
	duration(k, "sign_on.token_life", s.TokenLife, time.Minute, day)
	duration(k, "sign_on.last_sign_on", s.LastSignOn, time.Minute, 90*day)
	for _, f := range []struct{ key, path string }{
		{"sign_on.client_secret_file", s.ClientSecretFile}, {"sign_on.ca_file", s.CAFile},
	} {
		if f.path != "" && !filepath.IsAbs(f.path) {
			k.add(f.key, "%q is not an absolute path", f.path)
		}
	}
	if s.Issuer == "" {
		if s.ClientID != "" {
			k.add("sign_on.issuer", "is required beside client_id")
		}
		return
	}
	if !safeIssuer(s.Issuer) {
		k.add("sign_on.issuer", "is not a URL of https without query (http of a loopback address is one for tests)")
	}
	if s.ClientID == "" {
		k.add("sign_on.client_id", "is required beside issuer")
	}
	if s.GroupsClaim == "" || s.NameClaim == "" {
		k.add("sign_on", "groups_claim and name_claim are required beside issuer")
	}
}

func safeIssuer(issuer string) bool {
	u, err := weburl.Parse(issuer)
	if err != nil || u.RawQuery != "" || u.Fragment != "" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}

// Secret is the console's secret; empty for a public client.
func (s SignOn) Secret() (string, error) {
	if s.ClientSecretFile == "" {
		return "", nil
	}
	raw, err := os.ReadFile(s.ClientSecretFile)
	if err != nil {
		return "", fmt.Errorf("read sign_on.client_secret_file: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// Roots returns the authorities that verify the provider, and the PEM of those in the file. nil stands for those of the
// system alone.
func (s SignOn) Roots() (*x509.CertPool, string, error) {
	if s.CAFile == "" {
		return nil, "", nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, "", fmt.Errorf("read the system's authorities: %w", err)
	}
	raw, err := os.ReadFile(s.CAFile)
	if err != nil {
		return nil, "", fmt.Errorf("read sign_on.ca_file: %w", err)
	}
	if !pool.AppendCertsFromPEM(raw) {
		return nil, "", fmt.Errorf("sign_on.ca_file %s holds no certificate", s.CAFile)
	}
	return pool, string(raw), nil
}
