package config

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"time"
)

// Webhooks are the terms for sending events to other systems.
type Webhooks struct {
	// Source identifies this installation in the events: a URI reference.
	Source string `yaml:"source"`
	// CAFile holds more authorities than those of the system, in PEM.
	CAFile string `yaml:"ca_file"`
	// Timeout bounds one request.
	Timeout Duration `yaml:"timeout"`
	// MaxAttempts ends the tries of one event. The first repeat comes after RetryBase, each further one after three times
	// as long as the one before, up to RetryCap.
	MaxAttempts int      `yaml:"max_attempts"`
	RetryBase   Duration `yaml:"retry_base"`
	RetryCap    Duration `yaml:"retry_cap"`
	// PauseAfterEvents in a row that were given up pause a webhook that has failed for PauseAfter.
	PauseAfterEvents int      `yaml:"pause_after_events"`
	PauseAfter       Duration `yaml:"pause_after"`
	AllowPrivate     bool     `yaml:"allow_private"`
	AllowLoopback    bool     `yaml:"allow_loopback"`
	AllowLinkLocal   bool     `yaml:"allow_link_local"`
	// KeepDelivered and KeepDead are how long the record of ended deliveries stays.
	KeepDelivered Duration `yaml:"keep_delivered"`
	KeepDead      Duration `yaml:"keep_dead"`
}

func defaultWebhooks() Webhooks {
	return Webhooks{
		Source: "/ingot", Timeout: Duration{15 * time.Second}, MaxAttempts: 12, RetryBase: Duration{10 * time.Second},
		RetryCap: Duration{5 * time.Hour}, PauseAfterEvents: 10, PauseAfter: days(3), AllowPrivate: true,
		KeepDelivered: days(7), KeepDead: days(30),
	}
}

func (c *Config) checkWebhooks(k *checker) {
	w := c.Webhooks
	if _, err := url.Parse(w.Source); err != nil || w.Source == "" {
		k.add("webhooks.source", "is not a URI reference")
	}
	// A request that takes longer would be taken for one of a controller that died.
	duration(k, "webhooks.timeout", w.Timeout, time.Second, 20*time.Second)
	number(k, "webhooks.max_attempts", w.MaxAttempts, 1, 50)
	duration(k, "webhooks.retry_base", w.RetryBase, time.Second, time.Hour)
	duration(k, "webhooks.retry_cap", w.RetryCap, w.RetryBase.Duration, 7*day)
	number(k, "webhooks.pause_after_events", w.PauseAfterEvents, 1, 100_000)
	duration(k, "webhooks.pause_after", w.PauseAfter, time.Minute, year)
	duration(k, "webhooks.keep_delivered", w.KeepDelivered, time.Minute, 10*year)
	duration(k, "webhooks.keep_dead", w.KeepDead, time.Minute, 10*year)
}

// Roots are the authorities that receivers are verified by; nil stands for those of the system alone.
func (w Webhooks) Roots() (*x509.CertPool, error) {
	if w.CAFile == "" {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the system's authorities: %w", err)
	}
	raw, err := os.ReadFile(w.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read webhooks.ca_file: %w", err)
	}
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("webhooks.ca_file %s holds no certificate", w.CAFile)
	}
	return pool, nil
}
