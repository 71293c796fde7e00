package config

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
)

// Site is for role site: what it may serve, and where it keeps things.
type Site struct {
	// Interfaces are the network devices whose segments may be served. The controller sends the settings of each; orders
	// to serve on any other device are ignored.
	Interfaces []string `yaml:"interfaces"`
	// TFTPDir has boot programs that go before those of the distribution's iPXE in /usr/lib/ipxe.
	TFTPDir string `yaml:"tftp_dir"`
	// CacheDir keeps kernels and images; blobs in the state directory when empty. CacheSize bounds it.
	CacheDir  string `yaml:"cache_dir"`
	CacheSize Bytes  `yaml:"cache_size"`
	// HTTPPort is for segments that name none.
	HTTPPort int `yaml:"http_port"`
	// MediaPort is where BMCs fetch the images that they attach, over http; the one behind it takes https.
	MediaPort int `yaml:"media_port"`
	// BMCPoll is how often each BMC is asked how it is. Its sensors and its event log are read every twentieth time.
	BMCPoll time.Duration `yaml:"bmc_poll"`
	// User is who the agent becomes when it is started as root, keeping only what serving segments takes; root when
	// empty. Configuration and token must be readable for that user.
	User string `yaml:"user"`
}

func defaultSite() Site {
	return Site{CacheSize: 32 << 30, HTTPPort: 8080, MediaPort: 8082, BMCPoll: 30 * time.Second}
}

func (s Site) problems(role string, add func(bad bool, format string, args ...any)) {
	add(role != "site" && len(s.Interfaces) > 0, "site.interfaces is for role site, not %s", role)
	for i, name := range s.Interfaces {
		// IFNAMSIZ is 16 with the zero at its end.
		add(name == "" || len(name) > 15, "site.interfaces[%d]: %q is no name of a network device", i, name)
	}
	for key, dir := range map[string]string{"tftp_dir": s.TFTPDir, "cache_dir": s.CacheDir} {
		add(dir != "" && !filepath.IsAbs(dir), "site.%s %q is not an absolute path", key, dir)
	}
	add(s.User != "" && role != "site", "site.user is for role site, not %s", role)
	add(s.CacheSize < 64<<20, "site.cache_size is under 64MiB")
	add(s.HTTPPort < 1 || s.HTTPPort > 65535, "site.http_port %d is not a port", s.HTTPPort)
	add(s.MediaPort < 1 || s.MediaPort > 65534, "site.media_port %d is not a port with another one behind it", s.MediaPort)
	add(s.BMCPoll < time.Second, "site.bmc_poll is under 1s")
}

// Bytes is a size such as 500MiB or 32GiB; a bare number is in bytes.
type Bytes int64

var (
	sizeForm  = regexp.MustCompile(`^([0-9]{1,12})(|KiB|MiB|GiB|TiB)$`)
	sizeUnits = map[string]int64{"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
)

// UnmarshalYAML implements yaml.Unmarshaler.
func (b *Bytes) UnmarshalYAML(node *yaml.Node) error {
	m := sizeForm.FindStringSubmatch(node.Value)
	if m == nil {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %q is not a size such as 500MiB or 32GiB", node.Line,
			node.Value)}}
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || n > (1<<62)/sizeUnits[m[2]] {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %q is too big", node.Line, node.Value)}}
	}
	*b = Bytes(n * sizeUnits[m[2]])
	return nil
}
