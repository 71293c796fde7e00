package session

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

// A connection that was made early is used once; who connects again gets one of its own.
func TestAnEarlyConnectionIsUsedOnce(t *testing.T) {
	t.Parallel()
	early, other := net.Pipe()
	defer other.Close()
	more := errors.New("another one")
	next := func(context.Context, string) (net.Conn, error) { return nil, more }
	p := &reached{conn: early}
	dial := p.dialer(next)
	if c, err := dial(t.Context(), "x:1"); c != early || err != nil {
		t.Errorf("first: %v, %v", c, err)
	}
	if _, err := dial(t.Context(), "x:1"); !errors.Is(err, more) {
		t.Errorf("second: %v", err)
	}
	p.drop()
	if err := other.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Read(make([]byte, 1)); errors.Is(err, net.ErrClosed) || err == nil {
		t.Errorf("closed under its user: %v", err)
	}
}

func TestAnEarlyConnectionThatNobodyTakesIsClosed(t *testing.T) {
	t.Parallel()
	early, other := net.Pipe()
	defer other.Close()
	p := &reached{conn: early}
	p.drop()
	if _, err := early.Read(make([]byte, 1)); err == nil {
		t.Error("still open")
	}
	more := errors.New("another one")
	if _, err := p.dialer(func(context.Context, string) (net.Conn, error) { return nil, more })(t.Context(),
		"x:1"); !errors.Is(err, more) {
		t.Errorf("given out after its end: %v", err)
	}
}

// Before the certificate is known, and when it has expired, it is looked at first: it may have to be replaced
// elsewhere.
func TestAnExpiredCertificateIsLookedAtFirst(t *testing.T) {
	t.Parallel()
	calls, now := 0, time.Unix(1000, 0)
	r := New(Config{Dial: func(context.Context, string) (net.Conn, error) {
		calls++
		return nil, errors.New("away")
	}})
	for _, expires := range []time.Time{{}, now, now.Add(-time.Hour)} {
		r.expires = expires
		if p, err := r.predial(t.Context(), "x:1", now); p != nil || err != nil || calls != 0 {
			t.Errorf("expires %v: %v, %v, %d calls", expires, p, err, calls)
		}
	}
	r.expires = now.Add(time.Hour)
	if _, err := r.predial(t.Context(), "x:1", now); err == nil || calls != 1 {
		t.Errorf("%v, %d calls", err, calls)
	}
}
