// Package e2e tests whole Ingot systems: controllers and agents over real connections, with crashes, cuts and lies.
package e2e
