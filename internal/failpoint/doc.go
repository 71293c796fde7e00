// Package failpoint holds the named places at which a test can make a program fail: die as if by kill -9,
// return an error, or panic.
//
// # Overview
//
// Code that has a moment worth failing at registers a name once and calls Hit there:
//
//	var afterIntent = failpoint.Register("agent.after-intent")
//	...
//	if err := afterIntent.HitCtx(ctx); err != nil { ... }
//
// Failpoints are compiled into every build, because a crash test is worth most on the binary that ships. As
// long as nothing was ever armed in the process a hit costs one atomic load.
//
// A real process is armed by the environment variable INGOT_FAILPOINTS, a list such as
// "agent.after-intent=kill@3;agent.before-result=error". The main function calls FromEnv, which refuses names that no
// package registered. So a renamed failpoint cannot turn a crash test into one that tests nothing. In-process tests arm
// one with Set or Enable, or, since tests run in parallel, with a Scope carried in their context.
//
// # State
//
// The registry grows during package initialisation and never shrinks. The armed actions are process-wide; a
// Scope's are its own. Both count hits from the moment an action is set. An action with "@N" fires at the
// Nth hit only; one without fires at every hit.
//
// # Failure handling
//
// kill sends SIGKILL to the own process: no deferred function runs and no buffer is flushed, as with a real
// kill -9. error makes Hit return ErrInjected. panic panics with an error that wraps ErrInjected. sleep=DURATION waits
// and lets go on.
package failpoint
