// Package config is the controller's configuration: one strict struct, read from YAML and a few variables of the
// environment, with every problem reported at once.
package config

import (
	_ "embed"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/internal/obs"
	"github.com/ingot-metal/ingot/internal/obs/traces"
)

// Sample is a configuration file with every key at its default and a word on each.
//
//go:embed sample.yaml
var Sample []byte

// Config has all settings of a controller. Start from Default: the zero value is not usable.
type Config struct {
	// Dev is set by a flag, not by the file: a private PostgreSQL below DataDir takes the place of Database.URL.
	Dev bool `yaml:"-"`

	Listen Listen `yaml:"listen"`
	// DataDir holds the CA's keys and, with Dev, the database.
	DataDir string `yaml:"data_dir"`
	// ImagesDir holds the files of the image catalogue; empty means images in DataDir. Controllers of one database share
	// it. With Images.Bucket it holds files that come in, and is each controller's own.
	ImagesDir string `yaml:"images_dir"`
	// InstallerCmdline is added to the kernel command line of every installer. Anybody on a machine or its network can
	// read it: no secrets.
	InstallerCmdline string `yaml:"installer_cmdline"`
	// SecretsKeyFile holds the key that seals BMC credentials; empty means bmc.key in KeysDir, or without that
	// secrets/bmc.key in DataDir, made when missing. Controllers of one database share the key.
	SecretsKeyFile string `yaml:"secrets_key_file"`
	// KeysDir has the CA and the key that seals BMC credentials, for several controllers: `ingot-controller keys make`
	// writes it, and a controller copies the CA at its first start. Empty means that the controller makes them itself.
	KeysDir string `yaml:"keys_dir"`
	// TPMRootsFile holds certificates in PEM of the vendors whose TPMs are believed; empty means that every TPM is
	// believed by its first use alone.
	TPMRootsFile string   `yaml:"tpm_roots_file"`
	Database     Database `yaml:"database"`
	TLS          TLS      `yaml:"tls"`
	// Advertise are the addresses (host:port) that agents get; empty ones follow from TLS.Names and Listen.
	Advertise Advertise `yaml:"advertise"`
	// TokensFile holds the bearer tokens, see controller/auth.
	TokensFile string `yaml:"tokens_file"`
	// Reflection serves gRPC reflection on the frontpage.
	Reflection bool    `yaml:"reflection"`
	Clients    Clients `yaml:"clients"`
	// SignOn is how people sign on.
	SignOn SignOn `yaml:"sign_on"`
	// Strangers are bounds before it is known who calls.
	Strangers Strangers `yaml:"strangers"`
	Agents    Agents    `yaml:"agents"`
	// Lease is how long a controller's claim on its sessions holds without being renewed.
	Lease Duration `yaml:"lease"`
	Drain Drain    `yaml:"drain"`
	// DefaultImage is the image of a reimage where neither the request nor the machine names one; empty means that one
	// must.
	DefaultImage string `yaml:"default_image"`
	// Steps are limits by step kind; kinds that are not named keep the built-in ones.
	Steps map[string]Step `yaml:"steps"`
	// MaxMessageBytes bounds one message on any gRPC listener.
	MaxMessageBytes int      `yaml:"max_message_bytes"`
	Workers         int      `yaml:"workers"`
	Webhooks        Webhooks `yaml:"webhooks"`
	// Images has the place of the image catalogue's files, and the limits of uploads.
	Images Images `yaml:"images"`
	// Retention is how long growing data is kept.
	Retention Retention     `yaml:"retention"`
	Log       obs.LogConfig `yaml:"log"`
	// Traces is the destination of the traces of operations.
	Traces traces.Config `yaml:"traces"`
}

// Listen are addresses as net.Listen takes them.
type Listen struct {
	Frontpage string `yaml:"frontpage"`
	Fleet     string `yaml:"fleet"`
	Enrolment string `yaml:"enrolment"`
	HTTP      string `yaml:"http"`
	// REST serves the frontpage's calls as JSON over HTTPS, and the web console; empty means that nothing does.
	REST string `yaml:"rest"`
}

// Database is PostgreSQL.
type Database struct {
	// URL may hold a password: print it through redact.String.
	URL      string `yaml:"url"`
	PoolSize int    `yaml:"pool_size"`
	// Migrate brings the schema up to date at start.
	Migrate bool `yaml:"migrate"`
}

// TLS is about the certificates of the listeners. They come from our own CA, except that the frontpage may have one
// from files.
type TLS struct {
	// Names are the host names and addresses that the certificates are made out to.
	Names    []string `yaml:"names"`
	CertFile string   `yaml:"cert_file"`
	KeyFile  string   `yaml:"key_file"`
}

// Advertise are addresses that agents dial.
type Advertise struct {
	Fleet     []string `yaml:"fleet"`
	Enrolment []string `yaml:"enrolment"`
}

// Agents are the terms for agents.
type Agents struct {
	CertLifetime  Duration `yaml:"cert_lifetime"`
	ReenrollGrace Duration `yaml:"reenroll_grace"`
	// HeartbeatInterval is the smallest one; the controller may ask for more when the fleet is large.
	HeartbeatInterval Duration `yaml:"heartbeat_interval"`
	// MissedHeartbeats in a row make a machine unreachable.
	MissedHeartbeats int       `yaml:"missed_heartbeats"`
	Admission        Admission `yaml:"admission"`
}

// Step is the default limit of the steps of one kind. A field that is left out keeps the built-in value.
type Step struct {
	Timeout *Duration `yaml:"timeout"`
	Retries *int      `yaml:"retries"`
}

// Default returns the configuration of a controller without settings. It has no database yet.
func Default() *Config {
	return &Config{ //nolint:gosec // G101 takes the path of the token file for a credential
		Listen:     Listen{Frontpage: ":50051", Fleet: ":50052", Enrolment: ":50053", HTTP: "127.0.0.1:8080"},
		DataDir:    "/var/lib/ingot-controller",
		Database:   Database{PoolSize: 20, Migrate: true},
		TLS:        TLS{Names: defaultNames(os.Hostname)},
		TokensFile: "/etc/ingot/tokens",
		Clients:    defaultClients(),
		SignOn:     defaultSignOn(),
		Strangers:  defaultStrangers(),
		Agents: Agents{
			CertLifetime: days(7), ReenrollGrace: days(90),
			HeartbeatInterval: Duration{10 * time.Second}, MissedHeartbeats: 3,
			Admission: defaultAdmission(),
		},
		Drain:           defaultDrain(),
		Lease:           Duration{15 * time.Second},
		MaxMessageBytes: 4 << 20,
		Workers:         100,
		Webhooks:        defaultWebhooks(),
		Images:          defaultImages(),
		Log:             obs.LogConfig{Level: "info", Format: "text"},
		Traces:          traces.Default(),
	}
}

// defaultNames starts with the host's own name, where it has one that a certificate can carry.
func defaultNames(hostname func() (string, error)) []string {
	names := []string{"localhost", "127.0.0.1", "::1"}
	if h, err := hostname(); err == nil && h != "localhost" && checkName(h) == nil {
		names = append([]string{h}, names...)
	}
	return names
}

// StepDefaults are the built-in limits with those of the configuration laid over them.
func (c *Config) StepDefaults() plan.Defaults {
	out := plan.BuiltInDefaults()
	for kind, s := range c.Steps {
		d := out[kind]
		if s.Timeout != nil {
			d.Timeout = s.Timeout.Duration
		}
		if s.Retries != nil {
			d.Retries = *s.Retries
		}
		out[kind] = d
	}
	return out
}

// ImagesPath is where the files of the image catalogue are.
func (c *Config) ImagesPath() string {
	if c.ImagesDir != "" {
		return c.ImagesDir
	}
	return filepath.Join(c.DataDir, "images")
}

// SecretKeyName is the file in KeysDir with the key that seals BMC credentials.
const SecretKeyName = "bmc.key"

// SecretKeyPath is where the key is that seals BMC credentials.
func (c *Config) SecretKeyPath() string {
	if c.SecretsKeyFile != "" {
		return c.SecretsKeyFile
	}
	if c.KeysDir != "" {
		return filepath.Join(c.KeysDir, SecretKeyName)
	}
	return filepath.Join(c.DataDir, "secrets", SecretKeyName)
}

// FleetAddresses returns the addresses that agents dial for their sessions.
func (c *Config) FleetAddresses() []string {
	return advertised(c.Advertise.Fleet, c.TLS.Names, c.Listen.Fleet)
}

// EnrolmentAddresses are what bootstrap tokens tell agents to dial.
func (c *Config) EnrolmentAddresses() []string {
	return advertised(c.Advertise.Enrolment, c.TLS.Names, c.Listen.Enrolment)
}

// advertised returns the first name with the listener's port where nothing else is said.
func advertised(said, names []string, listen string) []string {
	if len(said) > 0 || len(names) == 0 {
		return said
	}
	_, port, err := net.SplitHostPort(listen)
	if err != nil {
		return nil // Validate has told
	}
	return []string{net.JoinHostPort(names[0], port)}
}

// ServerNames splits TLS.Names into what a certificate keeps apart.
func (c *Config) ServerNames() (dns []string, ips []net.IP) {
	for _, n := range c.TLS.Names {
		if ip := net.ParseIP(n); ip != nil {
			ips = append(ips, ip)
		} else {
			dns = append(dns, n)
		}
	}
	return dns, ips
}
