package traces

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
)

// Config is the destination of traces.
type Config struct {
	// OTLPEndpoint is host:port of a receiver of OTLP over gRPC. Empty: no traces are made.
	OTLPEndpoint string `yaml:"otlp_endpoint"`
	// Insecure speaks to it without TLS.
	Insecure bool `yaml:"insecure"`
	// CAFile holds the authorities in PEM that the receiver is verified by. Empty: those of the system.
	CAFile string `yaml:"ca_file"`
	// SampleRatio is the part of the operations that is traced, from 0 to 1. Controllers and agents choose the same ones.
	SampleRatio float64 `yaml:"sample_ratio"`
}

// Default makes no traces, and all of them where an endpoint is given.
func Default() Config { return Config{SampleRatio: 1} }

// Check returns one error for each field that cannot be used, by its YAML name.
func (c Config) Check() map[string]error {
	out := map[string]error{}
	if c.OTLPEndpoint != "" {
		host, port, err := net.SplitHostPort(c.OTLPEndpoint)
		if n, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil || host == "" || n == 0 {
			out["otlp_endpoint"] = fmt.Errorf("%q is not host:port", c.OTLPEndpoint)
		}
	}
	if c.Insecure && c.CAFile != "" {
		out["ca_file"] = errors.New("not together with insecure: without TLS no peer is verified")
	}
	if !(c.SampleRatio >= 0 && c.SampleRatio <= 1) { // not a number is refused too
		out["sample_ratio"] = fmt.Errorf("%v is not from 0 to 1", c.SampleRatio)
	}
	return out
}

// Roots are the authorities that the receiver is verified by; nil stands for those of the system.
func (c Config) Roots() (*x509.CertPool, error) {
	if c.CAFile == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read traces.ca_file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("traces.ca_file %s holds no certificate", c.CAFile)
	}
	return pool, nil
}
