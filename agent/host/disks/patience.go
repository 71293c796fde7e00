package disks

import (
	"errors"
	"reflect"
	"time"

	"github.com/ingot-metal/ingot/agent/disk/mirror"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/disk"
)

// Patience is how long an installer waits for disks, which controllers and arrays show when they are ready. The zero
// Patience does not wait.
type Patience struct {
	// Late is how long after the start a disk may still come.
	Late time.Duration
	// Settle is how long the list must stay the same before a choice is made that a disk to come could change.
	Settle time.Duration
}

// DefaultPatience is that of installers. Drives take up to 30 s to spin up from the power-on, which is earlier.
var DefaultPatience = Patience{Late: 20 * time.Second, Settle: 3 * time.Second}

const diskPoll = 250 * time.Millisecond

// waitForDisks makes a choice from the machine's disks when it can be made. Choices that name a disk are made as soon
// as it is there. Others take any disk and are made when none has come for a while. Earlier, a wrong disk could be
// taken because the right one, or one more that fits, is late.
func waitForDisks[T any](s *Storage, choose func([]disk.Device) (T, bool, error)) (T, error) {
	// An array of a write that was killed would keep its disks in use.
	if err := mirror.Stop(s.sys.Path(mirror.Node)); err != nil {
		s.sys.Log.Warn("an array is left of a write that was interrupted", "error", err)
	}
	var last []disk.Device
	var since time.Time
	for {
		all, err := s.Disks()
		if err != nil {
			var none T
			return none, err
		}
		now := time.Now()
		if since.IsZero() || !reflect.DeepEqual(all, last) {
			last, since = all, now
		}
		choice, named, err := choose(all)
		var no *disk.NoUniqueMatch
		missing := errors.As(err, &no) && no.None()
		settled := s.disksSettled(all, now.Sub(since))
		switch {
		case missing && now.Sub(s.started) < s.patience.Late:
		case err == nil && !named && !settled:
		default:
			return choice, err
		}
		<-clock.Real().After(diskPoll)
	}
}

// disksSettled reports whether the list has been the same for long enough, now or at a choice before.
func (s *Storage) disksSettled(all []disk.Device, same time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if same >= s.patience.Settle {
		s.settled = all
		return true
	}
	return reflect.DeepEqual(s.settled, all)
}
