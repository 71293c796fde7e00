package validate

import (
	"net/netip"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Report checks an installer's report, and returns its MAC address normalized.
func Report(r *baremetalv1.ReportNodeRequest) (mac string, err error) {
	var f faults
	mac, ok := MAC(r.GetMacAddress())
	if !ok {
		f.add("mac_address", "a MAC address, such as 52:54:00:12:34:56")
	}
	if _, err := netip.ParseAddr(r.GetIpAddress()); r.GetIpAddress() != "" && err != nil {
		f.add("ip_address", "an IPv4 or IPv6 address")
	}
	for _, t := range []struct{ field, value string }{
		{"hostname", r.GetHostname()}, {"vendor", r.GetVendor()}, {"model", r.GetModel()},
		{"serial_number", r.GetSerialNumber()},
		{"system_uuid", r.GetSystemUuid()},
	} {
		f.add(t.field, text(t.value, maxText))
	}
	switch r.GetInstallationStatus() {
	case "", "started", "progress", "complete", "failed":
	default:
		f.add("installation_status", "started, progress, complete or failed")
	}
	if p := r.GetInstallationProgress(); p < 0 || p > 100 {
		f.add("installation_progress", "0 to 100")
	}
	if len(r.GetInstallationError()) > maxComment {
		f.add("installation_error", "at most 4096 bytes")
	}
	return mac, f.err()
}
