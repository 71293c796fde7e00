// Package discover tests that an admin finds and registers the machines of a rack by the network of their BMCs, through
// the controller and a site's agent.
package discover
