// Package opentofu tests the provider of integrations/opentofu with OpenTofu itself against a real controller with
// simulated machines, with the build tag opentofu: make test-opentofu.
package opentofu
