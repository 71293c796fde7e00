package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ingot-metal/ingot/controller/domain/plan"
)

// checker collects problems.
type checker struct{ found Problems }

func (k *checker) add(key, format string, args ...any) {
	k.found = append(k.found, Problem{Key: key, Message: fmt.Sprintf(format, args...)})
}

// err adds a problem where there is an error.
func (k *checker) err(key string, err error) {
	if err != nil {
		k.add(key, "%v", err)
	}
}

// Validate returns everything that is wrong. It looks at the values only, not at files; see CheckFiles.
func (c *Config) Validate() Problems {
	k := &checker{}
	c.checkListen(k)
	c.checkDatabase(k)
	c.checkTLS(k)
	c.checkPaths(k)
	c.checkTimes(k)
	c.checkPacing(k)
	c.checkSteps(k)
	c.checkWebhooks(k)
	c.checkImages(k)
	c.checkRetention(k)
	c.checkClients(k)
	c.checkSignOn(k)
	c.checkStrangers(k)
	number(k, "max_message_bytes", c.MaxMessageBytes, 64<<10, 64<<20)
	number(k, "workers", c.Workers, 1, 10_000)
	for field, err := range c.Log.Check() {
		k.err("log."+field, err)
	}
	for field, err := range c.Traces.Check() {
		k.err("traces."+field, err)
	}
	return k.found
}

func (c *Config) checkListen(k *checker) {
	seen := map[string]string{}
	for _, l := range []struct{ key, address string }{
		{"listen.frontpage", c.Listen.Frontpage}, {"listen.fleet", c.Listen.Fleet},
		{"listen.enrolment", c.Listen.Enrolment}, {"listen.http", c.Listen.HTTP}, {"listen.rest", c.Listen.REST},
	} {
		if l.key == "listen.rest" && l.address == "" {
			continue // the one that may be off
		}
		port, err := checkAddress(l.address, true)
		k.err(l.key, err)
		if other := seen[l.address]; other != "" && port != 0 {
			k.add(l.key, "%s is the address of %s already", l.address, other)
		}
		seen[l.address] = l.key
	}
	for i, a := range c.Advertise.Fleet {
		_, err := checkAddress(a, false)
		k.err(fmt.Sprintf("advertise.fleet[%d]", i), err)
	}
	for i, a := range c.Advertise.Enrolment {
		_, err := checkAddress(a, false)
		k.err(fmt.Sprintf("advertise.enrolment[%d]", i), err)
	}
}

// checkAddress takes host:port. To listen, the host may be empty and the port 0.
func checkAddress(address string, listen bool) (port int, err error) {
	host, p, err := net.SplitHostPort(address)
	if err != nil {
		return 0, fmt.Errorf("%q is not host:port", address)
	}
	port, err = strconv.Atoi(p)
	if err != nil || port < 0 || port > 65535 || !listen && port == 0 {
		return 0, fmt.Errorf("%q has no usable port number", address)
	}
	if host == "" && listen {
		return port, nil
	}
	return port, checkName(host)
}

// namePattern is a host name of RFC 1123, section 2.1.
var namePattern = regexp.MustCompile(
	`^(?i)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*\.?$`)

func checkName(name string) error {
	if net.ParseIP(name) != nil || len(name) <= 253 && namePattern.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%q is neither a host name nor an IP address", name)
}

func (c *Config) checkDatabase(k *checker) {
	number(k, "database.pool_size", c.Database.PoolSize, 4, 1000)
	switch {
	case c.Dev && c.Database.URL != "":
		k.add("database.url", "with --dev the database is a private one; leave the URL out")
	case !c.Dev && c.Database.URL == "":
		k.add("database.url", "is required (or INGOT_DATABASE_URL, or --dev for a private database)")
	case c.Database.URL != "" && !parsesAsDatabase(c.Database.URL):
		k.add("database.url", "is not a PostgreSQL URL or connection string") // without the text: it may hold a password
	}
}

func parsesAsDatabase(url string) bool {
	_, err := pgconn.ParseConfig(url)
	return err == nil
}

func (c *Config) checkTLS(k *checker) {
	if len(c.TLS.Names) == 0 {
		k.add("tls.names", "names at least one host name or address that clients and agents dial")
	}
	for i, n := range c.TLS.Names {
		k.err(fmt.Sprintf("tls.names[%d]", i), checkName(n))
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		k.add("tls", "cert_file and key_file go together")
	}
}

func (c *Config) checkPaths(k *checker) {
	for _, p := range []struct {
		key, path string
		optional  bool
	}{
		{"data_dir", c.DataDir, false}, {"tokens_file", c.TokensFile, false},
		{"images_dir", c.ImagesDir, true}, {"secrets_key_file", c.SecretsKeyFile, true},
		{"keys_dir", c.KeysDir, true},
		{"tpm_roots_file", c.TPMRootsFile, true}, {"traces.ca_file", c.Traces.CAFile, true},
		{"tls.cert_file", c.TLS.CertFile, true}, {"tls.key_file", c.TLS.KeyFile, true},
	} {
		if !filepath.IsAbs(p.path) && !(p.optional && p.path == "") {
			k.add(p.key, "%q is not an absolute path", p.path)
		}
	}
}

const (
	day  = 24 * time.Hour
	year = 365 * day
)

func (c *Config) checkTimes(k *checker) {
	duration(k, "agents.cert_lifetime", c.Agents.CertLifetime, time.Hour, year)
	duration(k, "agents.reenroll_grace", c.Agents.ReenrollGrace, 0, 10*year)
	duration(k, "agents.heartbeat_interval", c.Agents.HeartbeatInterval, time.Second, time.Hour)
	number(k, "agents.missed_heartbeats", c.Agents.MissedHeartbeats, 1, 100)
	duration(k, "lease", c.Lease, 3*time.Second, 5*time.Minute)
}

func (c *Config) checkSteps(k *checker) {
	known := plan.BuiltInDefaults()
	for _, kind := range sortedKeys(c.Steps) {
		key := "steps." + kind
		if _, ok := known[kind]; !ok {
			k.add(key, "unknown step kind; there are %s", strings.Join(sortedKeys(known), ", "))
			continue
		}
		if t := c.Steps[kind].Timeout; t != nil {
			duration(k, key+".timeout", *t, time.Second, day)
		}
		if r := c.Steps[kind].Retries; r != nil {
			number(k, key+".retries", *r, 0, 100)
		}
	}
}

func number(k *checker, key string, n, low, high int) {
	if n < low || n > high {
		k.add(key, "%d is not from %d to %d", n, low, high)
	}
}

func duration(k *checker, key string, d Duration, low, high time.Duration) {
	if d.Duration < low || d.Duration > high {
		k.add(key, "%s is not from %s to %s", d, low, high)
	}
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for key := range m {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}

// CheckFiles looks at the files that the configuration names, for `config check`: they may be there only later, so
// Load does not ask for them.
func (c *Config) CheckFiles() Problems {
	k := &checker{}
	if c.TLS.CertFile != "" {
		_, err := tls.LoadX509KeyPair(c.TLS.CertFile, c.TLS.KeyFile)
		k.err("tls.cert_file", err)
	}
	if _, err := os.Stat(c.TokensFile); err != nil && !c.Dev {
		k.err("tokens_file", err)
	}
	if c.SecretsKeyFile != "" {
		_, err := os.Stat(c.SecretsKeyFile)
		k.err("secrets_key_file", err)
	}
	if c.KeysDir != "" {
		_, err := os.Stat(c.KeysDir)
		k.err("keys_dir", err)
	}
	_, err := c.Webhooks.Roots()
	k.err("webhooks.ca_file", err)
	_, err = c.SignOn.Secret()
	k.err("sign_on.client_secret_file", err)
	_, _, err = c.SignOn.Roots()
	k.err("sign_on.ca_file", err)
	_, err = c.Images.Bucket.Roots()
	k.err("images.bucket.ca_file", err)
	_, err = c.Traces.Roots()
	k.err("traces.ca_file", err)
	for _, d := range []struct{ key, path string }{{"data_dir", c.DataDir}, {"images_dir", c.ImagesPath()}} {
		if info, err := os.Stat(d.path); err == nil && !info.IsDir() {
			k.err(d.key, errors.New("is not a directory"))
		}
	}
	return k.found
}
