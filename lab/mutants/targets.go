package main

// target is a package whose code is mutated.
type target struct {
	// dir is the package's directory from the top of the tree.
	dir string
	// files are the mutated ones; none for all.
	files []string
	// also are the packages whose tests are tried on what the package's own tests let live.
	also []tests
}

// tests are tests of one package.
type tests struct {
	dir string
	// run matches their names, as in go test -run.
	run string
}

// stored are tests that decide on what a real Postgres holds.
var stored = []tests{
	{"controller/store/operation", "."}, {"controller/store/node", "."}, {"controller/store/workflow", "."},
	{"controller/store/session", "."}, {"controller/store/budget", "."}, {"controller/store/machine", "."},
	{"controller/store/rollout", "."}, {"controller/store/timeline", "."}, {"controller/store/catalog", "."},
}

// targets carry the promise: what decides, what grants, what remembers, and what acts.
var targets = []target{
	{dir: "controller/operation", also: stored},
	{dir: "controller/node", also: stored},
	{dir: "controller/workflow", also: stored},
	{dir: "controller/budget"},
	{dir: "controller/fleet", also: append([]tests{{"controller/operation", "."}}, stored...)},
	{dir: "internal/pki", files: []string{"grant.go"}},
	{dir: "agent/dispatch"},
	{dir: "agent/state"},
	{dir: "agent/command", also: []tests{{"agent/command/power", "."}, {"agent/command/repave", "."}}},
	{dir: "agent/command/cluster"},
	{dir: "agent/command/erase"},
	{dir: "agent/command/join"},
	{dir: "agent/command/kexec"},
	{dir: "agent/command/power"},
	{dir: "agent/command/provideraction"},
	{dir: "agent/command/reconfig"},
	{dir: "agent/command/repave"},
	{dir: "agent/command/resetdevices"},
	{dir: "agent/command/script"},
}
