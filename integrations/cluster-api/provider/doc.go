// Package provider reconciles IngotCluster and IngotMachine with a controller of Ingot.
//
// # One machine, once
//
// An IngotMachine writes the machine that it chooses into its own annotation first, and then its claim into the
// machine's label. Both writes are refused after another write meanwhile: the first keeps two processes from choosing
// two machines for one object. The second keeps two objects, also of two management clusters, from taking one machine.
// All work is asked for under request ids that follow from the claim. So a process that dies at any point and starts
// again asks for the same work, which happens once. The object's generation is no part of them: setting spec.providerID
// changes it.
package provider
