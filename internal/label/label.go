// Package label names the labels of machines that have a meaning to Ingot and its integrations.
package label

const (
	// Offered is set by an admin alone. Its value names the tool that may take the machine, such as ClusterAPI.
	Offered = "ingot.dev/offered"
	// Owner names the tool or the team that uses the machine. A tool takes no machine of another owner.
	Owner = "ingot.dev/owner"
)

// ClusterAPI is the provider of Cluster API, as a value of Offered and Owner.
const ClusterAPI = "cluster-api"
