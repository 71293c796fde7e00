package config

import "time"

// Strangers bounds the cost of unknown callers, on the listeners without known ones, and in time on all.
type Strangers struct {
	// EnrolmentConnections are open at a time on the enrolment listener, EnrolmentPerAddress those of one address.
	// EnrolmentCalls is how many of their calls are being received at a time, of 64 KiB at most each.
	EnrolmentConnections int `yaml:"enrolment_connections"`
	EnrolmentPerAddress  int `yaml:"enrolment_per_address"`
	EnrolmentCalls       int `yaml:"enrolment_calls"`
	// HTTPConnections are open at a time on the listener of health and metrics, HTTPPerAddress those of one address.
	HTTPConnections int `yaml:"http_connections"`
	HTTPPerAddress  int `yaml:"http_per_address"`
	// FirstByte is how long a connection may be silent, Handshake how long that may take once begun. FirstRequest is the
	// time from then until there is a request.
	FirstByte    Duration `yaml:"first_byte"`
	Handshake    Duration `yaml:"handshake"`
	FirstRequest Duration `yaml:"first_request"`
}

func defaultStrangers() Strangers {
	return Strangers{
		EnrolmentConnections: 256, EnrolmentPerAddress: 128, EnrolmentCalls: 128, HTTPConnections: 128, HTTPPerAddress: 64,
		FirstByte: Duration{10 * time.Second}, Handshake: Duration{15 * time.Second},
		FirstRequest: Duration{30 * time.Second},
	}
}

func (c *Config) checkStrangers(k *checker) {
	s := c.Strangers
	number(k, "strangers.enrolment_connections", s.EnrolmentConnections, 1, 1_000_000)
	number(k, "strangers.enrolment_per_address", s.EnrolmentPerAddress, 1, 1_000_000)
	number(k, "strangers.enrolment_calls", s.EnrolmentCalls, 1, 10_000)
	number(k, "strangers.http_connections", s.HTTPConnections, 1, 1_000_000)
	number(k, "strangers.http_per_address", s.HTTPPerAddress, 1, 1_000_000)
	duration(k, "strangers.first_byte", s.FirstByte, time.Second, 10*time.Minute)
	duration(k, "strangers.handshake", s.Handshake, time.Second, 10*time.Minute)
	duration(k, "strangers.first_request", s.FirstRequest, time.Second, 10*time.Minute)
}
