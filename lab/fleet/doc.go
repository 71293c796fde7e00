// Package fleet simulates fleets: tens of thousands of agents in a few processes, against real controllers.
//
// Real in every agent are its identity (a key and a certificate of its own, got through the enrolment listener and kept
// as an agent keeps them), its mTLS connection with both streams, and the code from the session to the executor seam:
// packages session and dispatch with their grants, intents, results and event numbers. Simulated are what lies behind
// the seam, a machine whose effects take the times and have the faults of a Script, and the agent's memory, which is
// this process's instead of a database. It keeps the same promises, but for the end of the process.
//
// Connections come from many addresses of 127.0.0.0/8, 1,000 from each, so that ports do not run out.
package fleet
