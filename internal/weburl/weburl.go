// Package weburl parses addresses of web servers that are stored now and called later.
package weburl

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
)

var (
	// ErrHost is returned for an address that names no host.
	ErrHost = errors.New("names no host")
	// ErrPort is returned for a port that no server can listen on.
	ErrPort = errors.New("the port is a number from 1 to 65535")
)

// Parse is url.Parse for an address with a host. Its port, if any, is from 1 to 65535.
func Parse(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, err
	}
	if u.Hostname() == "" || u.Opaque != "" {
		return nil, ErrHost
	}
	n, err := strconv.Atoi(u.Port())
	if u.Port() != "" && (err != nil || n < 1 || n > 65535) || strings.HasSuffix(u.Host, ":") {
		return nil, ErrPort
	}
	return u, nil
}
