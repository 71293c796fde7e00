package redfish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/internal/when"
)

// What a service may ask for with Retry-After (RFC 9110, 10.2.3).
const (
	// pauseMost is the longest pause within one call, pausesMost how many there may be for one request.
	pauseMost  = 5 * time.Second
	pausesMost = 2
	// afterMost bounds the pause that is passed on to the caller: a BMC that asks for a day is asked again before.
	afterMost = time.Minute
)

// pause is how long to wait before the same request is sent again; 0 where the answer is the last one. A request that
// is refused with 429 or 503 had no effect. A longer pause than this call has time for is left to the caller.
func (t *transport) pause(resp *http.Response, err error, try int) time.Duration {
	t.after = 0
	if err != nil || resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return 0
	}
	t.after = when.RetryAfter(resp.Header.Get("Retry-After"), time.Now(), afterMost)
	deadline, limited := t.ctx.Deadline()
	if try >= pausesMost || t.after > pauseMost || limited && time.Until(deadline) < t.after+time.Second {
		return 0
	}
	return t.after
}

// RetryAfter is the pause that the service asked for; 0 where it asked for none.
func (r *refused) RetryAfter() time.Duration { return r.after }

// hint adds the pause that the last answer asked for to the error that this answer became.
func (t *transport) hint(err error) error {
	var r *refused
	if errors.As(err, &r) && (r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable) {
		r.after = t.after
	}
	return err
}

func discard(resp *http.Response) error {
	const most = 64 << 10
	_, err := io.Copy(io.Discard, io.LimitReader(resp.Body, most))
	return errors.Join(err, resp.Body.Close())
}

func sleep(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wantsSlash reports whether the answer redirects to the same path with a slash at its end, on the same host. The
// method stays, whatever the status. Old Supermicro BMCs redirect log-ins so (github.com/bb-Ricardo/check_redfish, pull
// request 187), and Lenovo's x3650 M5 every path (github.com/PegaProx/project-pegaprox, issue 609).
func wantsSlash(req *http.Request, resp *http.Response, err error) bool {
	if err != nil || resp.StatusCode/100 != 3 || strings.HasSuffix(req.URL.Path, "/") {
		return false
	}
	to, err := resp.Location() // relative to the request
	return err == nil && to.Scheme == req.URL.Scheme && to.Host == req.URL.Host && to.Path == req.URL.Path+"/"
}

// again is the same request with its body from the start, to the path with a slash at its end where slash is true.
func again(req *http.Request, slash bool) (*http.Request, error) {
	req = req.Clone(req.Context())
	if slash {
		req.URL.Path, req.URL.RawPath = req.URL.Path+"/", ""
	}
	if req.GetBody == nil {
		return req, nil
	}
	body, err := req.GetBody()
	req.Body = body
	return req, err
}

func isLogin(req *http.Request) bool {
	return req.Method == http.MethodPost && strings.HasSuffix(strings.TrimSuffix(req.URL.Path, "/"), "/Sessions")
}

// outlive is the context of a log-in. It ends a little after the call's own: a session whose answer is not read stays
// open in the BMC, which has few.
func (t *transport) outlive() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), t.timeout)
	stop := context.AfterFunc(t.ctx, func() { time.AfterFunc(t.grace, cancel) })
	return ctx, func() { stop(); cancel() }
}

// locate sets the Location of an answer to a log-in, where only the body names the session. gofish reads nothing else,
// and DSP0266, "Redfish session login authentication", requires the header.
func locate(resp *http.Response) error {
	b, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	resp.Body = io.NopCloser(bytes.NewReader(b))
	var session path
	if json.Unmarshal(b, &session) == nil && session != "" {
		resp.Header.Set("Location", string(session))
	}
	return nil
}
