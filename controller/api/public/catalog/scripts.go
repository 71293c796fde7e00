package catalog

import (
	"context"
	"strings"

	"golang.org/x/crypto/ssh"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/secret"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	"github.com/ingot-metal/ingot/controller/validate"
)

// AddScript implements ScriptService.
func (s *Server) AddScript(ctx context.Context, r *baremetalv1.AddScriptRequest) (*baremetalv1.Script, error) {
	sc, err := validate.NewScript(r)
	if err != nil {
		return nil, err
	}
	return s.Config.Scripts.Add(ctx, sc, r.GetContent(), service.Actor(ctx))
}

// GetScript implements ScriptService.
func (s *Server) GetScript(ctx context.Context, r *baremetalv1.GetScriptRequest) (*baremetalv1.Script, error) {
	if err := validate.Key("script_ref", r.GetScriptRef()); err != nil {
		return nil, err
	}
	return s.stores.Catalog.GetScript(ctx, r.GetScriptRef())
}

// ListScripts implements ScriptService.
func (s *Server) ListScripts(
	ctx context.Context, r *baremetalv1.ListScriptsRequest,
) (*baremetalv1.ListScriptsResponse, error) {
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.Script]{
		Name: "scripts", Short: true,
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.Script, error) {
			return s.stores.Catalog.ListScripts(ctx, after.ID, limit)
		},
		Place: service.ByID((*baremetalv1.Script).GetScriptRef),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListScriptsResponse{Scripts: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// RemoveScript implements ScriptService.
func (s *Server) RemoveScript(ctx context.Context, r *baremetalv1.RemoveScriptRequest) (*baremetalv1.Script, error) {
	if err := validate.Key("script_ref", r.GetScriptRef()); err != nil {
		return nil, err
	}
	return s.Config.Scripts.Remove(ctx, r.GetScriptRef(), service.Actor(ctx))
}

// SetSSHCredentials implements ScriptService.
func (s *Server) SetSSHCredentials(
	ctx context.Context, r *baremetalv1.SetSSHCredentialsRequest,
) (*baremetalv1.SSHCredentials, error) {
	if err := validate.SSHCredentials(r); err != nil {
		return nil, err
	}
	ref := r.GetCredentialsRef()
	sealed := s.Config.Secrets.SealSSH(ref, secret.SSH{Username: r.GetUsername(), PrivateKey: r.GetPrivateKey()})
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	stored, err := s.stores.Credentials.SetSSHCredentials(ctx, ref, sealed, service.Actor(ctx), s.Clock.Now(), opts...)
	if err != nil {
		return nil, err
	}
	return s.sshCredentials(stored), nil
}

// ListSSHCredentials implements ScriptService.
func (s *Server) ListSSHCredentials(
	ctx context.Context, r *baremetalv1.ListSSHCredentialsRequest,
) (*baremetalv1.ListSSHCredentialsResponse, error) {
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.SSHCredentials]{
		Name: "ssh-credentials", Short: true,
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.SSHCredentials, error) {
			all, err := s.stores.Credentials.ListSSHCredentials(ctx, after.ID, limit)
			return service.Each(all, err, s.sshCredentials)
		},
		Place: service.ByID((*baremetalv1.SSHCredentials).GetCredentialsRef),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListSSHCredentialsResponse{Credentials: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// sshCredentials shows whose they are. Where the key is lost, user and public key stay empty: they must be set again.
func (s *Server) sshCredentials(c credentialstore.SealedCredentials) *baremetalv1.SSHCredentials {
	out := &baremetalv1.SSHCredentials{CredentialsRef: c.Ref, Version: c.Version, UpdatedAt: service.Stamp(c.UpdatedAt)}
	plain, err := s.Config.Secrets.OpenSSH(c.Ref, c.Sealed)
	if err != nil {
		return out
	}
	out.Username = plain.Username
	if key, err := ssh.ParsePrivateKey(plain.PrivateKey); err == nil {
		out.PublicKey = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey())))
	}
	return out
}

// DeleteSSHCredentials implements ScriptService.
func (s *Server) DeleteSSHCredentials(
	ctx context.Context, r *baremetalv1.DeleteSSHCredentialsRequest,
) (*baremetalv1.SSHCredentials, error) {
	if err := validate.Key("credentials_ref", r.GetCredentialsRef()); err != nil {
		return nil, err
	}
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	gone, err := s.stores.Credentials.DeleteSSHCredentials(
		ctx,
		r.GetCredentialsRef(),
		service.Actor(ctx),
		s.Clock.Now(),
		opts...)
	if err != nil {
		return nil, err
	}
	return s.sshCredentials(gone), nil
}
