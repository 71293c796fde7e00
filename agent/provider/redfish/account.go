package redfish

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/stmcginnis/gofish/common"

	"github.com/ingot-metal/ingot/agent/provider"
)

// account is a ManagerAccount of the DMTF's schema. The password never reads back.
type account struct {
	UserName lenient[string]
	ETag     lenient[string] `json:"@odata.etag"`
}

// findAccounts reads the account service, which needs a log-in. A service without one is no error.
func (c *Client) findAccounts(ctx context.Context) error {
	if err := c.readRoot(ctx); err != nil {
		return err
	}
	if c.root.AccountService == "" {
		if c.basic {
			_, _, err := c.get(c.root.Systems) // the log-in is the first request for a document that is not public
			return err
		}
		return nil
	}
	b, _, err := c.get(c.root.AccountService)
	if err != nil {
		return err
	}
	var service struct{ Accounts path }
	if err := json.Unmarshal(b, &service); err != nil {
		return fmt.Errorf("%w: account service: %w", provider.ErrProtocol, err)
	}
	c.accounts = service.Accounts
	return nil
}

// SetPassword changes the password of the account of that name, which may be the caller's own. Its errors hold no
// password: a service may repeat what it refuses. It returns provider.ErrUnchanged where nothing was asked of the BMC,
// or where the BMC has answered that it won't.
func (c *Client) SetPassword(ctx context.Context, user, password string) (later bool, err error) {
	err = c.call(ctx, func(context.Context) error {
		found, etag, err := c.accountOf(ctx, user)
		if err != nil {
			return fmt.Errorf("%w: %w", err, provider.ErrUnchanged)
		}
		status, err := c.patchStatus(found, etag, map[string]string{"Password": password})
		later = status == http.StatusAccepted
		err = classify(ctx, withoutPassword(err, password))
		if statusOf(err)/100 == 4 {
			return fmt.Errorf("%w: %w", err, provider.ErrUnchanged)
		}
		return err
	})
	return later, err
}

// accountOf finds an account by its name. Some services have a fixed number of accounts, most of which are unused.
func (c *Client) accountOf(ctx context.Context, user string) (found path, etag string, err error) {
	if !c.basic {
		if err := c.findAccounts(ctx); err != nil {
			return "", "", err
		}
	}
	if c.accounts == "" {
		return "", "", unsupported("the BMC has no Redfish account service")
	}
	sv := &survey{c: c}
	err = sv.each(c.accounts, maxMembers, func(p path, b []byte, tag string) error {
		var a account
		if err := parseObject(b, &a); err != nil {
			return err
		}
		if a.UserName.V != user {
			return nil
		}
		found, etag = p, cmp.Or(tag, a.ETag.V)
		return errEnough
	})
	switch {
	case err != nil || found != "":
		return found, etag, err
	case len(sv.missing) > 0:
		return "", "", fmt.Errorf("%w: look for the account %q: %w", provider.ErrRefused, user, sv.incomplete())
	}
	return "", "", unsupported("the BMC has no account %q of its own; is it one of a directory?", user)
}

// withoutPassword removes a password from a service's text.
func withoutPassword(err error, password string) error {
	var answered *common.Error
	if !errors.As(err, &answered) {
		return err
	}
	clean := func(s string) string { return strings.ReplaceAll(s, password, "…") }
	answered.Message, answered.Code = clean(answered.Message), clean(answered.Code)
	for i := range answered.ExtendedInfos {
		info := &answered.ExtendedInfos[i]
		info.Message, info.MessageID = clean(info.Message), clean(info.MessageID)
	}
	return err
}
