package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// forwards asks QEMU to choose the host's ports itself, so that no two machines want the same.
func forwards(c Config) string {
	var b strings.Builder
	for _, port := range c.Forward {
		fmt.Fprintf(&b, ",hostfwd=tcp:127.0.0.1:0-:%d", port)
	}
	return b.String()
}

// Forwarded is the address on the host's loopback that leads to one of the guest's ports named in Config.Forward.
// QEMU accepts a connection there at once, whether or not the guest does; one that the guest refuses is closed.
func (m *Monitor) Forwarded(ctx context.Context, guestPort int) (string, error) {
	data, err := m.execute(ctx, "human-monitor-command", map[string]string{"command-line": "info usernet"})
	if err != nil {
		return "", err
	}
	var table string
	if err := json.Unmarshal(data, &table); err != nil {
		return "", fmt.Errorf("parse list of forwarded ports: %w", err)
	}
	port, ok := findForward(table, guestPort)
	if !ok {
		return "", fmt.Errorf("port %d of the guest is not forwarded", guestPort)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), nil
}

// findForward reads lines such as "TCP[HOST_FORWARD] 12 127.0.0.1 41203 10.0.2.15 22 0 0": protocol, descriptor,
// host and guest (net/slirp.c and libslirp's slirp_connection_info).
func findForward(table string, guestPort int) (hostPort int, ok bool) {
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 6 || f[0] != "TCP[HOST_FORWARD]" || f[5] != strconv.Itoa(guestPort) {
			continue
		}
		hostPort, err := strconv.Atoi(f[3])
		return hostPort, err == nil
	}
	return 0, false
}
