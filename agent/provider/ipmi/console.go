package ipmi

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/command/transport"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/ingot-metal/ingot/agent/provider"
)

// ErrConsoleTaken: another session is attached to the serial console. It is kept.
var ErrConsoleTaken = errors.New("the serial console is in use")

// completionTaken is "payload already active on another session" (table 24-2).
const completionTaken = 0x80

// Console writes the output of the machine's serial port to out, until ctx ends (then the error is its cause) or the
// BMC stops. Nothing is ever typed. It takes the Client for itself.
func (c *Client) Console(ctx context.Context, out io.Writer) error {
	return c.call(ctx, func() error {
		payload := transport.ActivatePayloadRequest{
			PayloadType: types.PayloadTypeSOL, PayloadInstance: 1, EnableEncryption: true, EnableAuthentication: true,
		}
		if _, err := c.api.ActivatePayload(ctx, &payload); err != nil {
			return activation(err)
		}
		defer c.detach(ctx)
		in, nothing := io.Pipe() // reading it blocks, so nothing is typed
		defer nothing.CloseWithError(io.EOF)
		return c.api.SOLStream(ctx, in, out, &client.SOLStreamOptions{})
	})
}

func activation(err error) error {
	var completed *types.ResponseError
	switch {
	case errors.As(err, &completed) && completed.CompletionCode() == completionTaken:
		return fmt.Errorf("%w: %w", provider.ErrRefused, ErrConsoleTaken)
	case unsupported(err):
		return refuse("the BMC has no serial over LAN")
	}
	return err
}

// detach leaves the console to others, whether or not ctx has ended.
func (c *Client) detach(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*c.cfg.Timeout)
	defer cancel()
	// Closing the session does the same.
	_, _ = c.api.DeactivatePayload(ctx, &transport.DeactivatePayloadRequest{PayloadType: types.PayloadTypeSOL,
		PayloadInstance: 1})
}
