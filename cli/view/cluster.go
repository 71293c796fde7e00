package view

import (
	"strconv"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Clusters is the list of clusters.
func (s Style) Clusters(list []*pb.Cluster) *Table {
	t := &Table{Header: []string{"CLUSTER_REF", "SERVER", "CREDENTIALS", "VERSION", "UPDATED"}}
	for _, c := range list {
		t.Add(c.GetClusterRef(), Clean(c.GetServer()), s.clusterCredentials(c), strconv.FormatInt(c.GetVersion(), 10),
			Time(c.GetUpdatedAt()))
	}
	return t
}

func (s Style) clusterCredentials(c *pb.Cluster) string {
	if c.GetCredentialsKind() == "" {
		return s.Warn("sealed with a lost key: set them again")
	}
	return c.GetCredentialsKind()
}

// Cluster is one cluster.
func (s Style) Cluster(c *pb.Cluster) *Fields {
	f := &Fields{}
	f.Add("Cluster", c.GetClusterRef())
	f.Add("Server", Clean(c.GetServer()))
	f.Add("Credentials", s.clusterCredentials(c))
	f.Add("Version", strconv.FormatInt(c.GetVersion(), 10))
	f.Add("Updated", Time(c.GetUpdatedAt()))
	for _, h := range c.GetCaHashes() {
		f.Add("CA key", h)
	}
	return f
}
