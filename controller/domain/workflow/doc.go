// Package workflow decides how onboardings and decommissions go: their stages, their states, what an operator may do in
// each, and what a failure means. It is pure: the store keeps the rows, and the engine of operations does the work.
//
// # Sources of truth
//
// The workflow's row. Each attempt is an ordinary operation of type ONBOARD or DECOMMISSION. Its steps are those of the
// stages from the current one on. The row follows the operation in the transaction of the operation's decision.
//
// # State model
//
// Transitions has the states that may follow each state, legal the actions that may be taken in each. Stages never
// become node states: a node is draining, removing or enrolling while a workflow works on it. When its attempt ends
// without success, it falls back to a state that can be left.
//
// # Failure handling
//
// A failure is classified by its Reason. What another try can mend is failed_retryable, a bounded number of times;
// everything else is failed_manual_intervention. Every state that is not final has an action that leads out of it.
package workflow
