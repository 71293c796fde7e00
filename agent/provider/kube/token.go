package kube

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// Token is a bootstrap token (Kubernetes: "Authenticating with Bootstrap Tokens").
type Token struct {
	ID, Secret  string
	Expires     time.Time
	Description string
}

// bootstrapGroup is what kubeadm lets new machines ask for a certificate with.
const bootstrapGroup = "system:bootstrappers:kubeadm:default-node-token"

const (
	systemSecrets = "/api/v1/namespaces/kube-system/secrets" //nolint:gosec // a path
	tokenType     = "bootstrap.kubernetes.io/token"          //nolint:gosec // a type
)

type secretObject struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]any    `json:"metadata"`
	Type       string            `json:"type"`
	Data       map[string][]byte `json:"data"`
}

func (t Token) object() secretObject {
	return secretObject{
		APIVersion: "v1", Kind: "Secret", Type: tokenType,
		Metadata: map[string]any{"name": t.name(), "namespace": "kube-system"},
		Data: map[string][]byte{
			"token-id": []byte(t.ID), "token-secret": []byte(t.Secret),
			"expiration":                     []byte(t.Expires.UTC().Format(time.RFC3339)),
			"usage-bootstrap-authentication": []byte("true"), "usage-bootstrap-signing": []byte("true"),
			"auth-extra-groups": []byte(bootstrapGroup), "description": []byte(t.Description),
		},
	}
}

func (t Token) name() string { return "bootstrap-token-" + t.ID }

// MakeToken makes a token. One of its id that is there is the same one, made by the same command before.
func (c *Client) MakeToken(ctx context.Context, t Token) error {
	err := c.do(ctx, call{method: http.MethodPost, path: systemSecrets, kind: kindJSON, body: t.object()}, nil)
	if is(err, http.StatusConflict) {
		return nil
	}
	return err
}

// refusalOf returns the refusal that an error is.
func refusalOf(err error) *Refusal {
	var r *Refusal
	if !errors.As(err, &r) {
		return &Refusal{}
	}
	return r
}
