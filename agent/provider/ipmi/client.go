package ipmi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/cloudmeta"
)

// Config has the BMC's address and the settings of the connection.
type Config struct {
	// Addr is host:port.
	Addr               string
	Username, Password string
	// Administrator asks for that privilege in place of an operator's, which switches machines and changes no account.
	Administrator bool
	// BIOS is set when the machine's firmware is a BIOS and not UEFI.
	BIOS bool
	// Timeout of one packet, which is sent again up to Retries times. 0 means 2 s and 3.
	Timeout time.Duration
	Retries int
}

// Client has a session at one BMC. Its methods may be called from several goroutines and run one after the other. A
// session that is not used for a minute is ended by the BMC (IPMI 2.0, 6.12.15): then nothing answers.
type Client struct {
	mu  sync.Mutex
	cfg Config
	api *client.Client
	// simulator: OpenIPMI's ipmi_sim never sets the valid bit of the boot flags.
	simulator bool
}

// suites are tried in this order.
var suites = []types.CipherSuiteID{types.CipherSuiteID17, types.CipherSuiteID3}

// errSuite: the BMC doesn't have the cipher suite. No password has been used.
var errSuite = errors.New("cipher suite not supported")

// manufacturerOpenIPMI is what ipmi_sim's own controllers carry here and there: MontaVista's number (IANA).
const manufacturerOpenIPMI = 4753

// Open makes a session. Close must be called on the Client.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	if cfg.Timeout == 0 {
		cfg.Timeout = 2 * time.Second
	}
	if cfg.Retries == 0 {
		cfg.Retries = 3
	}
	var err error
	for _, suite := range suites {
		c := &Client{cfg: cfg}
		if err = c.open(ctx, suite); err == nil {
			return c, nil
		}
		if !errors.Is(err, errSuite) {
			break
		}
	}
	if errors.Is(err, errSuite) {
		err = fmt.Errorf("%w: %w", provider.ErrRefused, err)
	}
	return nil, fmt.Errorf("open IPMI session: %w", err)
}

func (c *Client) open(ctx context.Context, suite types.CipherSuiteID) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	addr, port, err := net.SplitHostPort(c.cfg.Addr)
	if err != nil {
		return err
	}
	if addr, err = cloudmeta.Resolve(ctx, addr); err != nil {
		return fmt.Errorf("%w: %w", provider.ErrSilent, err)
	}
	if strings.Contains(addr, ":") {
		addr = "[" + addr + "]" // it is joined with a colon in there
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	if c.api, err = client.NewClient(addr, number, c.cfg.Username, c.cfg.Password); err != nil {
		return &effect.Refusal{
			Kind:   effect.ErrInvalid,
			Reason: effect.ReasonInvalid,
			Detail: "the user name is too long for IPMI",
		}
	}
	c.api.WithTimeout(c.cfg.Timeout).WithRetry(c.cfg.Retries).WithCipherSuiteID(suite).
		WithMaxPrivilegeLevel(c.privilege())
	if err := c.handshake(ctx); err != nil {
		c.drop(ctx)
		return err
	}
	return nil
}

func (c *Client) privilege() types.PrivilegeLevel {
	if c.cfg.Administrator {
		return types.PrivilegeLevelAdministrator
	}
	return types.PrivilegeLevelOperator
}

// handshake is that of IPMI 2.0, 13.15, without asking for the channel's capabilities first: those are in 13.20 for
// consoles that also speak IPMI 1.5.
func (c *Client) handshake(ctx context.Context) error {
	if _, err := c.api.OpenSession(ctx); err != nil {
		return classify(ctx, cutShort(err, errSuite))
	}
	if _, err := c.api.RAKPMessage1(ctx); err != nil {
		return classify(ctx, cutShort(err, provider.ErrCredentials))
	}
	if _, err := c.api.RAKPMessage3(ctx); err != nil {
		return classify(ctx, cutShort(err, provider.ErrCredentials))
	}
	if _, err := c.api.SetSessionPrivilegeLevel(ctx, c.privilege()); err != nil {
		return classify(ctx, err)
	}
	c.simulator = c.isSimulator(ctx)
	return nil
}

// isSimulator asks for the device id, which some controllers answer with fewer bytes than table 20-2 has, or refuse to
// operators. Nothing else depends on it: a controller that does not identify itself is driven all the same.
func (c *Client) isSimulator(ctx context.Context) bool {
	id, err := c.api.GetDeviceID(ctx)
	return err == nil && id.ManufacturerID == manufacturerOpenIPMI
}

// cutShort returns the meaning of an answer that ends after the status: only refusals are that short, and go-ipmi,
// which wants the eight bytes of table 13-10, does not show which. ipmi_sim sends them. The first step uses no
// password.
func cutShort(err, meaning error) error {
	if errors.Is(err, types.ErrUnpackedDataTooShort) {
		return fmt.Errorf("%w: refused without a status: %w", meaning, err)
	}
	return err
}

// drop closes the socket without saying good-bye to a BMC that may not be there.
func (c *Client) drop(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	// The error is that of the good-bye.
	_ = c.api.Close(ctx)
}

// Close ends the session, as far as the BMC lets it, and closes the socket.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.api.Close(ctx); err != nil {
		return fmt.Errorf("close IPMI session: %w", err)
	}
	return nil
}

// Protocol is "ipmi".
func (c *Client) Protocol() string { return "ipmi" }

// call runs fn alone and classifies its error.
func (c *Client) call(ctx context.Context, fn func() error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return classify(ctx, fn())
}

// classify returns an error as the one of package provider. ctx is that of the call.
func classify(ctx context.Context, err error) error {
	var (
		status    *types.RmcpStatusError
		completed *types.ResponseError
		refusal   *effect.Refusal
	)
	switch {
	case err == nil, errors.As(err, &refusal), errors.Is(err, errSuite), errors.Is(err, provider.ErrCredentials):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", provider.ErrSilent, context.Cause(ctx))
	case errors.Is(err, client.ErrRAKPAuthentication):
		return fmt.Errorf("%w: RAKP authentication failed", provider.ErrCredentials)
	case errors.As(err, &status):
		return fmt.Errorf("%w: %w", meaning(status.StatusCode()), err)
	case errors.As(err, &completed):
		return fmt.Errorf("%w: completion code %#02x", provider.ErrRefused, uint8(completed.CompletionCode()))
	}
	return fmt.Errorf("%w: %w", provider.ErrSilent, err)
}

// meaning of an RMCP+ status (IPMI 2.0, table 13-15).
func meaning(code types.RmcpStatusCode) error {
	switch code {
	case types.RmcpStatusCodeInvalidAuthAlg, types.RmcpStatusCodeInvalidIntegrityAlg,
		types.RmcpStatusCodeInvalidConfidentAlg,
		types.RmcpStatusCodeNoMatchingAuthPayload, types.RmcpStatusCodeNoMatchingIntegrityPayload,
		types.RmcpStatusCodeNoCipherSuiteMatch:
		return errSuite
	case types.RmcpStatusCodeUnauthorizedName, types.RmcpStatusCodeUnauthorizedGUID,
		types.RmcpStatusCodeInvalidIntegrityCheckValue,
		types.RmcpStatusCodeUnauthorizedRoleOfPriLevel, types.RmcpStatusCodeInvalidRole,
		types.RmcpStatusCodeInvalidNameLength:
		return provider.ErrCredentials
	}
	return provider.ErrRefused
}

// unsupported reports whether the BMC doesn't know a command or a parameter (IPMI 2.0, table 5-2; 80h of 28.12).
func unsupported(err error) bool {
	var completed *types.ResponseError
	if !errors.As(err, &completed) {
		return false
	}
	switch completed.CompletionCode() {
	case 0x80, types.CodeInvalidCommand, types.CodeInvalidCommandForLUN, types.CodeIllegalCommand:
		return true
	}
	return false
}
