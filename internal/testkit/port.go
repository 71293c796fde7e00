package testkit

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

var ports struct {
	mu    sync.Mutex
	given map[string]bool
}

// FreePort chooses a TCP port of 127.0.0.1 for a program that is started later, or again. It is below those that the
// kernel assigns to connections (ip_local_port_range), so no connection takes it meanwhile, and is chosen once in a
// process.
func FreePort(t testing.TB) string {
	t.Helper()
	ports.mu.Lock()
	defer ports.mu.Unlock()
	for range 100 {
		port := strconv.Itoa(20000 + rand.IntN(12000)) //nolint:gosec // no secret
		if ports.given[port] {
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			continue // another process has it
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if ports.given == nil {
			ports.given = map[string]bool{}
		}
		ports.given[port] = true
		return port
	}
	t.Fatal("none of 100 ports was free")
	return ""
}
