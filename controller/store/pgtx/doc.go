// Package pgtx runs transactions on Postgres: the pool, retries, changes stored in groups, batches, and notifications.
//
// It knows nothing of what is stored. What a transaction means to others is noted in it, as Postcommit.Note does, and
// told after the commit by a hook that the store above sets.
package pgtx
