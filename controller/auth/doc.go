// Package auth decides who may call what on the three gRPC listeners: bearer tokens with scopes on the frontpage,
// client certificates on the fleet listener, nothing but TLS on the enrolment listener. The rights themselves are
// values of controller/domain/access; controller/call carries the caller to the handlers.
//
// # Sources of truth
//
// The token file lists the bearer tokens: one line "name scope sha256" for each, where sha256 is the lower-case
// hexadecimal SHA-256 of the token. Tokens are 256 random bits, so a plain hash is enough: there is nothing to guess.
// The table in table.go has the need and the listener of each method; a method that is not in it is refused.
//
// # States
//
// Tokens holds one immutable set, replaced whole by Reload. Every open stream is on a list with the rights that it was
// admitted for. After a reload the list is walked: streams whose token is gone or has become too small are ended within
// a second. All others go on undisturbed.
//
// # Failures
//
// A file that cannot be read or has a fault in any line changes nothing: the old set stays and the log has the reason.
// An empty file is a fault too, since it is what a writer leaves behind that was cut short.
//
// The authorization metadata is removed before a handler runs, and is never logged.
package auth
