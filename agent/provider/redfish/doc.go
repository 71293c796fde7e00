// Package redfish speaks Redfish (DMTF DSP0266) to one BMC: power, boot device of the next boot, identify light,
// readings and log.
//
// Requests, sessions and errors are gofish's. Documents are read by the few properties that are acted upon, in
// parse.go, because services differ in the rest: a number where the schema has text must not keep a machine from being
// switched off.
//
// A Client logs in once and keeps the session: each use of a password is a chance to lock an account, and an entry in
// the BMC's audit log. A service that has no sessions, or none left, gets the password with each request. When a
// session has ended, the Client logs in again by itself, once per call.
//
// Nothing in a BMC's answer leads a request to another host: links are taken as paths, and redirects are followed
// within the service, for reading alone. Methods are serial and end with their context, or after Config.Timeout for
// each request.
package redfish
