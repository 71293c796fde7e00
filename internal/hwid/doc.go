// Package hwid reads the values that distinguish hardware: MAC addresses, UUIDs, and the texts that makers leave in
// DMI. Both sides and the command line share it: no other code parses them, so that one text means one thing
// everywhere.
package hwid
