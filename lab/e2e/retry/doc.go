// Package retry holds over the wire that a plain retry follows every way in which an operation fails: the same call
// under another request id. Only an unknown outcome asks for an operator's verdict before.
package retry
