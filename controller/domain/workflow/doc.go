// Package workflow decides how onboardings and decommissions go: their stages, their states, what an operator may do in
// each, and what a failure means. It is pure: the store keeps the rows, and the engine of operations does the work.
//
// # Sources of truth
//
// The workflow's row. Each attempt is an ordinary operation of type ONBOARD or DECOMMISSION whose steps are those of
// the stages from the current one on; the row follows the operation in the transaction of the operation's decision.
//
// # State model
//
// Transitions says which state may follow which, legal which action may be taken in which. Stages never become node
// states: a node is draining, removing or enrolling while a workflow works on it, and falls back to a state that can be
// left when its attempt ends without success.
//
// # Failure handling
//
// A failure is classified by its Reason. What another try can mend is failed_retryable, a bounded number of times;
// everything else is failed_manual_intervention. Every state that is not final has an action that leads out of it.
package workflow
