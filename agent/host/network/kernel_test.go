package network

import (
	"encoding/json"
	"testing"

	"github.com/ingot-metal/ingot/agent/host/hosttest"
	"github.com/ingot-metal/ingot/agent/host/textdiff"
)

// An address comes back from the record of a change as it was set, and not as Ingot would set it.
func TestAddressesComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	if !hosttest.InNamespace(t) {
		return
	}
	const look = "ip -o addr show dev here | tr -s ' ' | grep -v fe80 | sort"
	hosttest.Shell(t, `ip link add here type veth peer name there; ip link set here up; ip link set there up
		ip addr add 10.9.0.1/24 dev here; ip addr add 10.8.0.1/24 brd + dev here
		ip addr add 10.7.0.1/24 brd 10.7.0.254 dev here label here:a; ip addr add 10.6.0.1 peer 10.6.0.2/32 dev here
		ip addr add 10.5.0.1/32 scope host dev here; ip addr add 2001:db8::1/64 nodad dev here`)
	before := hosttest.Shell(t, look)
	links, err := kernelLinks()
	hosttest.Must(t, err)
	record, err := json.Marshal(links)
	hosttest.Must(t, err)
	var saved []SavedLink
	hosttest.Must(t, json.Unmarshal(record, &saved))
	hosttest.Shell(t, "ip addr flush dev here scope global; ip addr flush dev here scope host")
	hosttest.Must(t, reconcile(saved))
	if diff := textdiff.Unified(
		"before",
		"after",
		textdiff.Lines(before),
		textdiff.Lines(hosttest.Shell(t, look)),
	); diff != "" {
		t.Error(diff)
	}
}
