// Package metal is a small data centre in network namespaces: machines in their chassis with BMCs, on the switch of a
// provisioning segment, and a site agent on it. Its controller is on the host's network.
//
// # Sources of truth
//
// Controller and agents are the programs as they are shipped, in processes of their own. Its data on machines comes
// from their hardware (package chassis); its data on operations comes from the API, as a client.
//
// # The network
//
//	machines ── switch ── site agent (SiteAddress)          BMCs (BMCAddress, one each)
//	                        └── ControllerAddress ── tunnel ── the controller, on the host's loopback
//
// Switch and machines are in one namespace, site agent and BMCs in another: a bridge answers for the addresses of the
// namespace that it is in. Nothing on the host changes.
//
// # Failure
//
// Everything ends with this process, even when it is killed; only the directory stays.
package metal
