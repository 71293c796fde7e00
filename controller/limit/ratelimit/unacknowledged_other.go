//go:build !linux

package ratelimit

import "net"

func limitUnacknowledged(net.Conn) {}
