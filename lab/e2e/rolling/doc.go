// Package rolling tests a controller set that is restarted, killed and upgraded in turn, under load.
package rolling
