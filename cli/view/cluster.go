package view

import (
	"strconv"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Clusters are the columns of clusters.
func (s Style) Clusters(c *pb.Cluster) (cells, wide []Cell) {
	return []Cell{
		{"CLUSTER_REF", c.GetClusterRef()}, {"SERVER", Clean(c.GetServer())}, {"CREDENTIALS", s.clusterCredentials(c)},
		{"VERSION", strconv.FormatInt(c.GetVersion(), 10)}, {"UPDATED", Time(c.GetUpdatedAt())},
	}, nil
}

func (s Style) clusterCredentials(c *pb.Cluster) string {
	if c.GetCredentialsKind() == "" {
		return s.Warn("sealed with a lost key: set them again")
	}
	return c.GetCredentialsKind()
}

// Cluster is one cluster.
func (s Style) Cluster(c *pb.Cluster) string {
	f := &Fields{}
	f.Add("Cluster", c.GetClusterRef())
	f.Add("Server", Clean(c.GetServer()))
	f.Add("Credentials", s.clusterCredentials(c))
	f.Add("Version", strconv.FormatInt(c.GetVersion(), 10))
	f.Add("Updated", Time(c.GetUpdatedAt()))
	for _, h := range c.GetCaHashes() {
		f.Add("CA key", h)
	}
	return f.String()
}
