// Package ssh runs scripts on machines over SSH, at most once each.
//
// A server is trusted by pinned host keys alone; nothing is trusted on first use. What is run on a machine is one of a
// few constant texts (remote.go), none of which holds anything that was made by anybody: names, arguments and scripts
// reach them over standard input, as data. An argument is never read by a shell: it is one line in a file, decoded by
// printf(1)'s %b, whose only special character is escaped (args.go), and becomes one element of the script's argv.
//
// Every run has a directory on the machine, named after its command. "started" in it is made by mkdir(2), which
// succeeds once: that is what makes a run happen at most once, whoever asks how often. The script runs in a session of
// its own under a supervisor, which outlives the connection, keeps the exit code, bounds the output that is kept and
// kills the script's process group when its time is up, even if nobody asks again.
package ssh
