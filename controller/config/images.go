package config

import (
	"net/netip"
)

// Images bounds what the image catalogue takes in.
type Images struct {
	// AllowNetworks are networks in CIDR form that images may be fetched from beside public addresses: private, loopback
	// or link-local ones are refused otherwise.
	AllowNetworks []string `yaml:"allow_networks"`
	// MaxBytes bounds one file.
	MaxBytes int64 `yaml:"max_bytes"`
}

func (c *Config) checkImages(k *checker) {
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
