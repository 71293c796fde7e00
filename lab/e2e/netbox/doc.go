// Package netbox tests integrations/netbox against a real controller with a simulated machine, and an emulated NetBox
// of 3.1 and of 4.6: make test-netbox. INGOT_TEST_NETBOX_URL and INGOT_TEST_NETBOX_TOKEN add a real, empty one.
package netbox
