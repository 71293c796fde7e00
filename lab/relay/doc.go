// Package relay is the network between two programs under test: a TCP listener on loopback that forwards to a target
// and behaves as networks do. It can refuse, cut, hold back all bytes or those of one direction, and be slow. It can
// let one connection overtake another, and close one end of a connection without the other. It never changes or
// reorders the bytes of one connection. On the way to PostgreSQL it can lose a COMMIT or the answer to it.
package relay
