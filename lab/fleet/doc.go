// Package fleet simulates fleets: tens of thousands of agents in a few processes, against real controllers.
//
// Real in every agent are its identity, its mTLS connection with both streams, and the code from the session to the
// executor seam. The identity is a key and a certificate, got through the enrolment listener and kept as an agent keeps
// them. The code is: packages session and dispatch with their grants, intents, results and event numbers. Simulated are
// the machine behind the seam, whose effects take the times and have the faults of a Script, and the agent's memory.
// The memory is this process's instead of a database. It keeps the same promises, but for the end of the process.
//
// Connections come from many addresses of 127.0.0.0/8, 1,000 from each, so that ports do not run out.
package fleet
