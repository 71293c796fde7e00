// Package authority tests the rotation of the CA on controllers and agents that are processes.
package authority
