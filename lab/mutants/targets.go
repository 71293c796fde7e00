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

// users are the packages whose tests use the store's parts that lock, store sets and count.
var users = []tests{
	{"controller/store/operation", "."}, {"controller/store/node", "."}, {"controller/store/workflow", "."},
	{"controller/store/session", "."}, {"controller/store/schema", "."}, {"controller/store/rollout", "."},
	{"controller/store/incarnation", "."},
}

// targets carry the promise: what decides, what grants, what remembers, and what acts.
var targets = []target{
	{dir: "controller/domain/operation", also: append([]tests{{"controller/domain/operation/decider", "."}}, stored...)},
	{dir: "controller/domain/operation/decider", also: stored},
	{dir: "controller/domain/operation/situation",
		also: append([]tests{{"controller/domain/operation/decider", "."}}, stored...)},
	{dir: "controller/domain/node", also: stored},
	{dir: "controller/domain/workflow", also: stored},
	{dir: "controller/domain/budget"},
	{dir: "controller/domain/fleet", also: append([]tests{{"controller/domain/operation/decider", "."}}, stored...)},
	{dir: "controller/store/operation", also: users},
	{dir: "controller/store/pgtx", also: users},
	{dir: "controller/store/budget", also: users},
	{dir: "controller/store/session", also: users},
	{dir: "controller/store/nodestate", also: users},
	{dir: "controller/store/incarnation", also: users},
	{dir: "internal/pki", files: []string{"grant.go"}},
	{dir: "agent/dispatch"},
	{dir: "agent/state"},
	{dir: "agent/executor", also: []tests{{"agent/executor/power", "."}, {"agent/executor/repave", "."}}},
	{dir: "agent/executor/cluster"},
	{dir: "agent/executor/erase"},
	{dir: "agent/executor/join"},
	{dir: "agent/executor/kexec"},
	{dir: "agent/executor/power"},
	{dir: "agent/executor/provideraction"},
	{dir: "agent/executor/reconfig"},
	{dir: "agent/executor/repave"},
	{dir: "agent/executor/resetdevices"},
	{dir: "agent/executor/script"},
	{dir: "agent/executor/testhardware"},
}
