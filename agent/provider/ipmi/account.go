package ipmi

import (
	"context"
	"errors"
	"fmt"

	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/ingot-metal/ingot/agent/provider"
)

// Lengths of passwords in bytes (22.30), and the highest user id (22.26).
const (
	shortPassword = 16
	longPassword  = 20
	highestUser   = 63
)

// SetPassword changes the password of the user of that name (22.30); the session needs the administrator's privilege.
// It returns provider.ErrUnchanged where nothing was asked of the BMC, or where the BMC has answered that it won't.
func (c *Client) SetPassword(ctx context.Context, user, password string) (later bool, err error) {
	if len(password) > longPassword {
		return false, fmt.Errorf("%w: %w", refuse("IPMI takes passwords of at most 20 bytes"), provider.ErrUnchanged)
	}
	err = c.call(ctx, func() error {
		id, err := c.userID(ctx, user)
		if err != nil {
			return fmt.Errorf("%w: %w", classify(ctx, err), provider.ErrUnchanged)
		}
		long := len(password) > shortPassword
		_, err = c.api.SetUserPassword(ctx, id, password, long)
		if wrongLength(err) && !long {
			_, err = c.api.SetUserPassword(ctx, id, password, true) // some take the long form alone
		}
		switch {
		case unsupported(err):
			return fmt.Errorf("%w: %w", refuse("the BMC changes no passwords over IPMI"), provider.ErrUnchanged)
		case answeredNo(err):
			return fmt.Errorf("%w: %w", classify(ctx, err), provider.ErrUnchanged)
		}
		return err
	})
	return false, err
}

// userID asks for the name of each user up to the number that the BMC has (22.27, 22.29). An id without a name is
// unused, and some BMCs refuse to name it.
func (c *Client) userID(ctx context.Context, name string) (uint8, error) {
	const thisChannel = 0x0e
	most := uint8(highestUser)
	access, err := c.api.GetUserAccess(ctx, thisChannel, 1)
	switch {
	case err == nil && access.MaxUsersIDCount > 0:
		most = access.MaxUsersIDCount
	case err != nil && !answeredNo(err):
		return 0, err
	}
	for id := uint8(1); id <= most; id++ {
		user, err := c.api.GetUsername(ctx, id)
		if err != nil && !answeredNo(err) {
			return 0, err
		}
		if err == nil && user.Username == name {
			return id, nil
		}
	}
	return 0, refuse("the BMC has no IPMI user %q", name)
}

// wrongLength reports whether the BMC refuses the number of bytes (table 5-2).
func wrongLength(err error) bool {
	var completed *types.ResponseError
	return errors.As(err, &completed) && (completed.CompletionCode() == types.CodeRequestDataLengthInvalid ||
		completed.CompletionCode() == types.CodeRequestDataTruncated)
}
