package agent

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/internal/task"
)

// TestALargeMessageIsTakenBeforeTheNextIsReceived holds that an agent cannot fill memory with messages that wait.
func TestALargeMessageIsTakenBeforeTheNextIsReceived(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		send, asked := []*fleetv1.EventsRequest{logOf(1), logOf(largeMessage), logOf(2)}, 0
		recv := func() (*fleetv1.EventsRequest, error) {
			if asked++; asked > len(send) {
				return nil, io.EOF
			}
			return send[asked-1], nil
		}
		messages, ended := make(chan received[*fleetv1.EventsRequest], takenAtOnce), make(chan error, 1)
		task.Background("read ahead", func() { ended <- readAhead(t.Context(), messages, recv) })
		<-messages
		large := <-messages
		synctest.Wait()
		if asked != 2 || large.taken == nil {
			t.Fatalf("%d messages were received, want 2, the second one large", asked)
		}
		close(large.taken)
		if err := <-ended; !errors.Is(err, io.EOF) || len(messages) != 1 {
			t.Errorf("reading ended with %v, and %d messages wait, want 1", err, len(messages))
		}
	})
}

// TestReadingAheadEndsWhileMessagesWait holds that no goroutine is left where a message cannot be taken.
func TestReadingAheadEndsWhileMessagesWait(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	task.Background("read ahead", func() {
		ended <- readAhead(ctx, make(chan received[*fleetv1.EventsRequest]),
			func() (*fleetv1.EventsRequest, error) { return logOf(1), nil })
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("reading ended with %v", err)
	}
}

// logOf returns an event with so many bytes of a log.
func logOf(size int) *fleetv1.EventsRequest {
	return &fleetv1.EventsRequest{Message: &fleetv1.EventsRequest_Event{Event: &fleetv1.Event{
		Body: &fleetv1.Event_Log{Log: &fleetv1.LogLines{Data: make([]byte, size)}}}}}
}

func TestFaultText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "md127 (raid1) lacks 1 of 2 disks": "md127 (raid1) lacks 1 of 2 disks",
		"md0\x00is\n\x1b[2Jgone": "md0is [2Jgone", "md\xff": "md?",
	} {
		if got := faultText(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	long := faultText(strings.Repeat("ä", mostFault))
	if len(long) > mostFault+len("…") || !utf8.ValidString(long) || !strings.HasSuffix(long, "…") {
		t.Errorf("a long one has %d bytes and ends in %q", len(long), long[len(long)-6:])
	}
}
