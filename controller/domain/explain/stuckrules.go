package explain

import (
	"time"
)

// stuck says that the current step runs far longer than its kind does, and that nothing automatic will happen soon.
func (s *scene) stuck(next time.Time) bool {
	if s.step == nil || s.step.StartedAt.IsZero() {
		return false
	}
	return Stuck(s.Now.Sub(s.step.StartedAt), s.Normal, s.Now, next)
}
