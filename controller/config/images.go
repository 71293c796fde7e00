package config

import (
	"crypto/x509"
	"errors"
	"fmt"
	"github.com/ingot-metal/ingot/internal/weburl"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Images has the place of the catalogue's files, and the limits of uploads.
type Images struct {
	// Bucket keeps the files in place of ImagesDir, where it has a name.
	Bucket Bucket `yaml:"bucket"`
	// AllowNetworks are networks in CIDR form that images may be fetched from beside public addresses: private, loopback
	// or link-local ones are refused otherwise.
	AllowNetworks []string `yaml:"allow_networks"`
	// MaxBytes bounds one file.
	MaxBytes int64 `yaml:"max_bytes"`
	// Registries are asked for images whose URL begins with oci://.
	Registries Registries `yaml:"registries"`
}

// Registries configures access to OCI registries. A host is host or host:port, as in the URL.
type Registries struct {
	// AuthFile has credentials, in the form of ~/.docker/config.json.
	AuthFile string `yaml:"auth_file"`
	// Hosts may be asked too, where a registry sends for tokens and blobs.
	Hosts []string `yaml:"hosts"`
	// PlainHTTP are asked by http.
	PlainHTTP []string `yaml:"plain_http"`
}

// Bucket is one of S3, or of another service that speaks its protocol.
type Bucket struct {
	// Name of the bucket; empty means that there is none.
	Name string `yaml:"name"`
	// Endpoint is the service's URL, without a path.
	Endpoint string `yaml:"endpoint"`
	Region   string `yaml:"region"`
	// Prefix starts the name of every object; it ends with a slash, or is empty.
	Prefix string `yaml:"prefix"`
	// PathStyle puts the bucket's name into the path of a URL, and not before the host name.
	PathStyle bool `yaml:"path_style"`
	// CredentialsFile has the access key, in the form of ~/.aws/credentials.
	CredentialsFile string `yaml:"credentials_file"`
	// CAFile holds more authorities than those of the system, in PEM.
	CAFile string `yaml:"ca_file"`
}

func defaultImages() Images {
	return Images{MaxBytes: 64 << 30, Bucket: Bucket{Region: "us-east-1", PathStyle: true}}
}

var (
	// bucketName is what S3 allows (Amazon S3 User Guide, "General purpose bucket naming rules").
	bucketName   = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	bucketPrefix = regexp.MustCompile(`^([A-Za-z0-9_.-]+/)*$`)
	bucketRegion = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

	// registryHost is a host with or without a port, in lower case.
	registryHost = regexp.MustCompile(`^([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?$`)
)

func (r Registries) check(k *checker) {
	if r.AuthFile != "" && !filepath.IsAbs(r.AuthFile) {
		k.add("images.registries.auth_file", "%q is not an absolute path", r.AuthFile)
	}
	for key, list := range map[string][]string{"hosts": r.Hosts, "plain_http": r.PlainHTTP} {
		for i, host := range list {
			if !registryHost.MatchString(host) {
				k.add(fmt.Sprintf("images.registries.%s[%d]", key, i), "%q is not a host such as registry.example.org:5000", host)
			}
		}
	}
}

func (b Bucket) check(k *checker) {
	for _, f := range []struct{ key, path string }{
		{"images.bucket.credentials_file", b.CredentialsFile}, {"images.bucket.ca_file", b.CAFile},
	} {
		if f.path != "" && !filepath.IsAbs(f.path) {
			k.add(f.key, "%q is not an absolute path", f.path)
		}
	}
	if b.Name == "" {
		if b.Endpoint != "" {
			k.add("images.bucket.name", "is required beside endpoint")
		}
		return
	}
	if !bucketName.MatchString(b.Name) {
		k.add("images.bucket.name", "%q is not the name of a bucket", b.Name)
	}
	if _, _, err := b.Host(); err != nil {
		k.err("images.bucket.endpoint", err)
	}
	if !bucketPrefix.MatchString(b.Prefix) || strings.Contains("/"+b.Prefix, "/../") {
		k.add("images.bucket.prefix", "is empty, or parts that end with a slash, such as ingot/")
	}
	if !bucketRegion.MatchString(b.Region) {
		k.add("images.bucket.region", "%q is not the name of a region", b.Region)
	}
	if b.CredentialsFile == "" {
		k.add("images.bucket.credentials_file", "is required beside name")
	}
}

// Host is the host and port of the endpoint, and whether it speaks TLS.
func (b Bucket) Host() (host string, secure bool, err error) {
	u, err := weburl.Parse(b.Endpoint)
	if err != nil || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" ||
		u.Fragment != "" {
		return "", false, errors.New("is not a URL of a host alone, such as https://s3.example.org")
	}
	ip := net.ParseIP(u.Hostname())
	switch {
	case u.Scheme == "https":
		return u.Host, true, nil
	case u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()):
		return u.Host, false, nil
	}
	return "", false, errors.New("is not a URL of https (http of a loopback address is one for tests)")
}

// Roots are the authorities that the service is verified by; nil stands for those of the system alone.
func (b Bucket) Roots() (*x509.CertPool, error) {
	if b.CAFile == "" {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the system's authorities: %w", err)
	}
	raw, err := os.ReadFile(b.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read images.bucket.ca_file: %w", err)
	}
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("images.bucket.ca_file %s holds no certificate", b.CAFile)
	}
	return pool, nil
}

func (c *Config) checkImages(k *checker) {
	c.Images.Bucket.check(k)
	c.Images.Registries.check(k)
	for _, n := range c.Images.AllowNetworks {
		if _, err := netip.ParsePrefix(n); err != nil {
			k.add("images.allow_networks", "%q is not a network such as 10.0.0.0/8", n)
		}
	}
	if c.Images.MaxBytes < 1<<20 {
		k.add("images.max_bytes", "at least 1048576")
	}
}

// Networks are AllowNetworks, parsed. The configuration was checked.
func (i Images) Networks() []netip.Prefix {
	var out []netip.Prefix
	for _, n := range i.AllowNetworks {
		if p, err := netip.ParsePrefix(n); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}
