// Package store opens the controller's database, and wires the stores of its aggregates, which hold all SQL.
//
// # Layers
//
// Each package below imports only those before it: dbsqlc (generated from queries/), pgtx (transactions), and the
// helpers jsonscan and convert. Then come history, machine, nodestate, workflowstate, operation, session, workflow,
// node, and those that few others need. invariants/imports.txt has the whole order, and a test holds it.
//
// # Sources of truth
//
// Postgres. One function, operation.Apply, writes the state of operations, steps and commands, in one transaction,
// guarded by the operation's version and the command's state. The machine's row is always locked first.
//
// # State model
//
// The schema is in migrations/; its constraints hold the rules that no code may break: one active operation and one
// unsettled command per machine, finished operations never change, active ones always have a wake_at.
//
// # Failure handling
//
// A method returns when its transaction has committed, or an error and nothing has changed. Serialization conflicts
// and lost versions are retried inside; a database that is away is failure.Unavailable with DATABASE_UNAVAILABLE.
package store

//go:generate sqlc generate -f ../../sqlc.yaml
