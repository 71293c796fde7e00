// Command kill breaks one large Ingot system for minutes while many clients work, and judges its history.
//
// # Overview
//
// The system is a private PostgreSQL, two controllers, one site agent with hundreds of simulated machines and a number
// of host agents. Each is a process of its own, with a relay on every connection. A seed decides which process is
// killed, stopped, paused or cut off, whose clock is stepped, and when PostgreSQL is stopped in mode immediate. Then
// everything is healed and the system must come to rest.
//
// # Sources of truth
//
// Effects on machines are written down by a recorder, a process that no fault strikes, and every fault by this one.
// Package lab/chaos/check judges the operations, and package judge every explanation of a machine, against those two.
//
// # Failure handling
//
// The history, the explanations and the logs of a run with a violation stay below dist/kill; --rejudge judges them
// again. A seed fixes the faults and the calls, not the order in which processes meet them.
package main
