// Command chaos breaks whole Ingot systems and looks whether they have kept their promises.
//
// # Overview
//
// A cell is one private PostgreSQL, one to three controllers and a few agents on simulated machines. All are processes
// of their own, with relays on every connection between them. A run is about a second of traffic by several clients
// while faults that are drawn from a seed strike. Then everything is healed, the cell comes to rest, and package check
// judges the history. A cell is used for many runs and then replaced.
//
// Package plan draws the faults, package trial is the cell, package program one of its processes. This package makes
// the runs, keeps their journal and reports.
//
// # Sources of truth
//
// Effects on machines are counted by a recorder, a process that no fault strikes; each effect waits until it is written
// down there. The API's data in the end, the observations of watchers and readers, and the answers to clients are
// compared with that and with each other.
//
// # Failure handling
//
// A run with a violation is kept below dist/chaos: the history as JSON lines, the logs of the cell, and the command
// that runs its seed again. A seed fixes the faults and the calls, not the order in which processes meet them.
package main
