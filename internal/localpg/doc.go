// Package localpg runs a private PostgreSQL cluster from the binaries that the system has: for a controller that has no
// database yet, and for tests. Only the owner of its directory (and root) can connect: it listens on a unix socket in a
// directory of mode 0700 only.
//
// # Sources of truth
//
// Config.Dir holds everything: data/ (the cluster), run/ (the socket), postgres.log and lock. Whether a server runs
// is read from data/postmaster.pid together with /proc, never remembered: a server that outlived a killed process is
// found again and used. The lock (flock) belongs to the process that has the cluster open; the kernel drops it with
// the process.
//
// # States
//
//	absent ─initdb into data.new, rename─▶ stopped ─postgres─▶ starting ─▶ running ─SIGINT─▶ stopping ─▶ stopped
//
// Open goes from any of them to running. An initdb that was cut short leaves data.new only, which the next one
// removes.
//
// # Failures
//
// A stale postmaster.pid (its process is gone, a zombie, or something else) is removed. A server that is just
// stopping is waited for. If a server dies while it is starting, the error carries the end of its log.
package localpg
