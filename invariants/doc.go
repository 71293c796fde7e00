// Package invariants holds rules of the whole tree that no single package can test: who may import whom, that the set
// of reasons only grows, that each call which starts work is idempotent, that no column holds personal data.
//
// It has tests only. They read the source, the descriptors and the schema, never a running controller. Lists that a
// rule compares with stand beside the tests as plain text, so that a change of a rule shows in review.
package invariants
