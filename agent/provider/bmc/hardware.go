package bmc

import (
	"context"

	"github.com/ingot-metal/ingot/agent/provider"
)

// MaxUnknownDocument is how many bytes a document of a BMC may have that is no machine's yet: many are read at a time.
const MaxUnknownDocument = 1 << 20

// Hardware logs in to a BMC that is no machine's yet, with credentials that the caller holds, reads what it says of its
// machine, and logs out. The same budget holds as for machines: what the BMC has refused before is not sent again.
// accepted is called when it has taken the credentials. What was read stands beside an error too.
func (p *Provider) Hardware(
	ctx context.Context, endpoint, ref string, creds Credentials, accepted func(),
) (found provider.Hardware, err error) {
	t := provider.Target{BMCEndpoint: endpoint, CredentialsRef: ref, CredentialsVersion: creds.Version}
	err = p.callWith(ctx, t, &creds, func(ctx context.Context, d driver) error {
		accepted()
		var err error
		found, err = d.Hardware(ctx)
		return err
	})
	return found, err
}
