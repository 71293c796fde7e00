package redfish

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/stmcginnis/gofish/redfish"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
)

// ReasonNotOfService is the reason of a refusal when this BMC doesn't offer it.
const ReasonNotOfService = "NOT_OF_BMC"

func unsupported(format string, args ...any) error {
	return &effect.Refusal{Kind: effect.ErrUnsupported, Reason: ReasonNotOfService, Detail: fmt.Sprintf(format, args...)}
}

// Protocol is "redfish".
func (c *Client) Protocol() string { return "redfish" }

func (c *Client) readSystem() (s system, etag string, err error) {
	b, etag, err := c.get(c.system)
	if err != nil {
		return system{}, "", essential(c.rt.ctx, err)
	}
	s, err = parseSystem(b)
	return s, etag, err
}

// PowerState is unknown while the machine is on its way, or when the BMC doesn't say.
func (c *Client) PowerState(ctx context.Context) (state provider.PowerState, err error) {
	state = provider.PowerUnknown
	err = c.call(ctx, func(context.Context) error {
		s, _, err := c.readSystem()
		if err == nil {
			state = s.power()
		}
		return err
	})
	return state, err
}

// Switch returns when the BMC has accepted.
func (c *Client) Switch(ctx context.Context, sw provider.Switch) error {
	return c.call(ctx, func(context.Context) error {
		s, _, err := c.readSystem()
		if err != nil {
			return err
		}
		target, kind, ok := s.resetFor(sw)
		if !ok {
			return unsupported("the BMC offers no reset type for %q", sw)
		}
		resp, err := c.api.Post(string(target), map[string]redfish.ResetType{"ResetType": kind})
		return finish(resp, err)
	})
}

func finish(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// The text is for people; the effect is read back.
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// patch sends If-Match where the service gave an ETag. One that has changed in between is ignored: the change that we
// make doesn't depend on what else has changed.
func (c *Client) patch(p path, etag string, doc any) error {
	_, err := c.patchStatus(p, etag, doc)
	return err
}

// patchStatus is patch, and returns the status with which the service has accepted.
func (c *Client) patchStatus(p path, etag string, doc any) (status int, err error) {
	headers := map[string]string{}
	if etag != "" {
		headers["If-Match"] = etag
	}
	resp, err := c.api.PatchWithHeaders(string(p), doc, headers)
	if err = finish(resp, err); err == nil {
		return resp.StatusCode, nil
	}
	if code := statusOf(classify(c.rt.ctx, err)); code != http.StatusPreconditionFailed &&
		code != http.StatusPreconditionRequired {
		return 0, err
	}
	resp, err = c.api.PatchWithHeaders(string(p), doc, map[string]string{"If-Match": "*"})
	if err = finish(resp, err); err != nil {
		return 0, err
	}
	return resp.StatusCode, nil
}

// Identify lights the identify LED, or turns it off.
func (c *Client) Identify(ctx context.Context, on bool) error {
	return c.call(ctx, func(context.Context) error {
		s, etag, err := c.readSystem()
		if err != nil {
			return err
		}
		switch {
		case s.LocationIndicatorActive != nil:
			return c.patch(c.system, etag, map[string]bool{"LocationIndicatorActive": on})
		case s.IndicatorLED.V != "" && on:
			return c.patch(c.system, etag, map[string]string{"IndicatorLED": "Lit"})
		case s.IndicatorLED.V != "":
			return c.patch(c.system, etag, map[string]string{"IndicatorLED": "Off"})
		}
		return unsupported("the BMC offers no identify light")
	})
}

// Light reads the identify LED; one that blinks is on.
func (c *Client) Light(ctx context.Context) (light provider.Light, err error) {
	err = c.call(ctx, func(context.Context) error {
		s, _, err := c.readSystem()
		if err != nil {
			return err
		}
		switch led := s.IndicatorLED.V; {
		case s.LocationIndicatorActive != nil && s.LocationIndicatorActive.V, same(led, "Lit"), same(led, "Blinking"):
			light = provider.LightOn
		case s.LocationIndicatorActive != nil, same(led, "Off"):
			light = provider.LightOff
		}
		return nil
	})
	return light, err
}

// Console: Redfish services offer a serial console at best by SSH, Telnet or a vendor's web socket, none of which is
// spoken here.
func (c *Client) Console(context.Context, io.Writer) error {
	return unsupported("a serial console is captured over IPMI only")
}
