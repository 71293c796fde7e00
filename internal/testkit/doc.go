// Package testkit is what tests share: a real PostgreSQL with a database for each test, waiting for conditions, logs
// that belong to a test.
//
// The server is the one of INGOT_TEST_DATABASE_URL, which `scripts/testpg run -- command` sets. Without the variable
// the first test that asks starts a private one for its process. It ends with the process, also when that is killed.
// Its files are memory where the machine has enough of it.
package testkit
