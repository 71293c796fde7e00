// Package backup has a test that loses a controller with everything that it has, and goes on from its backup elsewhere.
package backup
