package inventory

import (
	"encoding/base64"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// kubeconfig has the fields that are read of a kubeconfig file (client-go, clientcmd/api/v1).
type kubeconfig struct {
	CurrentContext string `yaml:"current-context"`
	Contexts       []struct {
		Name    string `yaml:"name"`
		Context struct {
			Cluster string `yaml:"cluster"`
			User    string `yaml:"user"`
		} `yaml:"context"`
	} `yaml:"contexts"`
	Clusters []struct {
		Name    string `yaml:"name"`
		Cluster struct {
			Server   string `yaml:"server"`
			CA       string `yaml:"certificate-authority-data"`
			Insecure bool   `yaml:"insecure-skip-tls-verify"`
		} `yaml:"cluster"`
	} `yaml:"clusters"`
	Users []struct {
		Name string `yaml:"name"`
		User struct {
			Token       string `yaml:"token"`
			Certificate string `yaml:"client-certificate-data"`
			Key         string `yaml:"client-key-data"`
		} `yaml:"user"`
	} `yaml:"users"`
}

// fromKubeconfig reads one context. What the file only points to is not looked for: it would be read on another machine
// than the one that it was written for.
func fromKubeconfig(raw []byte, name string) (*pb.SetClusterRequest, error) {
	var k kubeconfig
	if err := yaml.Unmarshal(raw, &k); err != nil {
		return nil, errors.New("it is not YAML") // the cause may show its content
	}
	if name == "" {
		name = k.CurrentContext
	}
	for _, c := range k.Contexts {
		if c.Name == name {
			return k.request(c.Context.Cluster, c.Context.User)
		}
	}
	return nil, fmt.Errorf("it has no context %q; name one with --kube-context", name)
}

func (k *kubeconfig) request(cluster, user string) (*pb.SetClusterRequest, error) {
	out := &pb.SetClusterRequest{}
	for _, c := range k.Clusters {
		if c.Name == cluster && c.Cluster.Insecure {
			return nil, errors.New("insecure-skip-tls-verify is not done: give the cluster's CA")
		}
		if c.Name == cluster {
			out.Server = c.Cluster.Server
			if err := decode(&out.CaPem, "certificate-authority-data", c.Cluster.CA); err != nil {
				return nil, err
			}
		}
	}
	for _, u := range k.Users {
		if u.Name != user {
			continue
		}
		out.BearerToken = u.User.Token
		if out.GetBearerToken() != "" {
			return out, nil
		}
		return out, errors.Join(decode(&out.ClientCertificatePem, "client-certificate-data", u.User.Certificate),
			decode(&out.ClientKeyPem, "client-key-data", u.User.Key))
	}
	return nil, fmt.Errorf("it has no user %q", user)
}

func decode(into *[]byte, field, text string) error {
	if text == "" {
		return fmt.Errorf("it has no %s; kubectl config view --flatten --minify --raw writes one that has", field)
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return fmt.Errorf("its %s is not base64", field)
	}
	*into = raw
	return nil
}
