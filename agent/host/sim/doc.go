// Package sim is the simulated twin of package host: machines that exist in a directory.
//
// # Overview
//
// A World is a directory outside every agent. It holds one journal of effects for all machines and one state file per
// machine. Host is one machine as seen by the agent that runs on it. The fake provider sees the same machines from
// outside, as a BMC would.
//
// # Sources of truth
//
// The journal records which effects happened and how often. It is appended under O_APPEND with one write per line, and
// an fsync before the method returns. A process killed at any point leaves a truthful count. The state file has the
// machine's state. It is replaced by rename, under a lock per machine that also holds between processes. State is
// written first, with the records that it owes to the journal. The next load of a state adds the records that it still
// owes.
//
// A process of its own can count beside the journal: with a recorder every record also goes to its socket, before
// the call that caused it returns.
//
// # State model
//
// Effects that were accepted and happen later (a reboot after its delay, a late effect) are stored in the state with a
// due time. They happen at the first look after that time, even if the process that asked for them has ended: an
// accepted reboot does not need its agent any more. A machine that goes down (reboot, power off) counts that; a Host
// made before answers ErrDown from then on, as a killed process would.
//
// # Failure handling
//
// A Script makes chosen effects fail, by kind and by the how-manieth time they were asked for. The counts live in the
// state file and so survive the agent too. All reports of a Host are marked as simulated.
package sim
