// Package console serves the web console: the pages, which are built from web/ and compiled in, and the sessions of
// the people who use them.
//
// The pages call the public REST API and nothing else. A session is a cookie that holds the bearer token of its person,
// sealed with the controllers' key: every controller that shares the key can open it, and none keeps it. Each request
// is checked with the token itself, so that a session ends when its token does. The cookie counts only beside the
// header X-Ingot-Console, which no other site can send, and scripts cannot read it.
package console
