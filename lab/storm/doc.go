// Package storm holds a whole system against a storm of requests: everything that a fleet can be asked at once, on
// simulated machines whose own journals say what was done to them. Its tests take minutes and have the build tag storm;
// `make test-storm` runs them.
package storm
