// Package trial is one system that is broken again and again: its processes, the faults that strike them, the clients,
// and the history of each run.
package trial
