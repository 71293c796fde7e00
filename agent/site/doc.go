// Package site is the role of an agent that works for the machines of its site. It executes commands for those without
// an agent of their own, through providers, and serves the network segments that they boot from.
//
// # Overview
//
// Providers and Executor find who executes a command. Service does the rest. It serves every segment of the
// controller's document, on the network devices that this agent's own configuration allows. It runs a DHCP server or a
// proxy (package dhcp), router advertisements (ra), TFTP (tftp) and the boot server (httpboot, with installerenrol and
// relay). It keeps the files that machines fetch (cache), and stays in step with the controller (sync).
//
// # Sources of truth
//
// The controller's document determines the services and the boot order of each machine. The last one is in the agent's
// memory and is served from the start on, with the controller or without. This agent owns the leases.
//
// # State model
//
//	document -> plan (readDocument, without I/O) -> segments started, changed or stopped -> revision told as applied
//
// A segment whose configuration stays the same only has its assignments replaced, at once for each of its services. One
// that changes is started anew; the others don't notice. A document counts as applied when no service answers by an
// older one and every new one has reported its state.
//
// # Failure handling
//
// Each service of a segment that fails is started again by itself, and why it is down goes to the controller. A segment
// that makes no sense, or is on a device that is not allowed, is refused and the rest is served. The same holds for
// assignments. When a newer process has this agent's identity, commands, BMCs and the session are left to it. The
// segments are served on.
package site
