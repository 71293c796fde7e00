// Package signon speaks OpenID Connect with the provider that people sign on with.
//
// # Sources of truth
//
// The provider says who somebody is and in which groups; its ID token is the bearer token of the API, and good for as
// long as it says itself, within a bound of ours. Roles are the controller's own (package auth). A person who leaves a
// group keeps its roles until the token ends.
//
// # Failures
//
// The provider is asked when somebody needs it, never at the start. Its document and keys are kept in memory and in the
// database, so that tokens which are under way go on while it is away, on controllers that start meanwhile too. New
// sign-ons and renewals are refused with SIGN_ON_UNAVAILABLE and the reason. However many callers ask, it is asked
// once at a time, and not again for some seconds after a failure or for a key that it does not have.
package signon
