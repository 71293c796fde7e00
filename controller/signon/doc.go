// Package signon speaks OpenID Connect with the provider that people sign on with.
//
// # Sources of truth
//
// The provider asserts a person's identity and groups. Its ID token is the bearer token of the API, and valid for its
// own time within a bound of ours. Roles are the controller's own (package auth). A person who leaves a group keeps its
// roles until the token ends.
//
// # Failures
//
// The provider is asked when a call needs it, never at the start. Its document and keys are kept in memory and in the
// database. So present tokens stay valid while it is away, also on controllers that start meanwhile. New sign-ons and
// renewals are refused with SIGN_ON_UNAVAILABLE and the reason. It is asked by one call at a time, however many callers
// there are. It is not asked again for some seconds after a failure or for a key that it does not have.
package signon
