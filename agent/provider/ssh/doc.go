// Package ssh runs scripts on machines over SSH, at most once each.
//
// A server is trusted by pinned host keys alone; nothing is trusted on first use. Only a few constant texts run on a
// machine (remote.go), without any foreign content: names, arguments and scripts reach them over standard input, as
// data. A shell never reads an argument: it is one line in a file, decoded by printf(1)'s %b, whose only special
// character is escaped (args.go). It becomes one element of the script's argv.
//
// Every run has a directory on the machine, named after its command. "started" in it is made by mkdir(2), which
// succeeds once: so a run happens at most once, however often it is asked for. The script runs in a session of its own
// under a supervisor, which outlives the connection, keeps the exit code, and bounds the output. It kills the script's
// process group when its time is up, even without another request.
package ssh
