// Package client connects the command line to a controller: the file of contexts, what wins when flags,
// environment and file disagree, TLS, the bearer token, and the repetition of calls whose answer was lost.
//
// Source of truth: nothing here. The file holds addresses and where to find secrets; a token may stand in it, so it is
// written with mode 0600.
//
// Failure handling: a call that the server may see twice without harm is repeated with backoff while the connection is
// down. Every call that starts work carries a request id, which makes it one of those. The few that are not are sent
// once, and their error reports an open outcome.
package client
