// Package pgtx runs transactions on Postgres: the pool, retries, changes stored in groups, batches, and notifications.
//
// It has no knowledge of the tables. A transaction's messages to others are noted in it by Notes.Note. A hook of
// the store above sends them after the commit.
package pgtx
