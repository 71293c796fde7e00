// Package discover tests the search for the machines of a rack by the network of their BMCs. An admin finds and
// registers them through the controller and a site's agent.
package discover
