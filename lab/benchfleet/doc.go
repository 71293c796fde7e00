// Command benchfleet measures what fleets cost this tree on this machine, and prints one table with each figure beside
// its limit: the memory of an idle session, the time in which a fleet comes back after its controller was killed beside
// what the machine's TLS handshakes allow, the latency of dispatch with many sessions, a crowd of sessions over several
// controllers, the onboarding of machines, and, when asked for, a soak.
//
// Everything runs on loopback, from the binaries in bin/, and ends by itself: a private Postgres with the settings of
// `ingot-controller --dev`, controllers in processes of their own, and agents of package fleet in others. Stages can be
// run alone. With --dir the database and the identities stay, and the next run on it enrols nobody again.
package main
