// Package controller wires the controller together: database, CA, engine, the three gRPC listeners and the HTTP one. It
// holds no logic of its own.
//
// # Sources of truth
//
// Postgres. A controller may be killed at any time; another, or the next, goes on where it was.
//
// # Start and end
//
// Listeners open at once. Until the database answers and its schema is up to date, calls get UNAVAILABLE with
// DATABASE_UNAVAILABLE and /readyz fails. A stopping controller sends its agents elsewhere, ends its streams and lets
// go of its sessions.
package controller
