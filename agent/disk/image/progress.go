package image

import (
	"fmt"
	"time"
)

// weights are how much of the whole each stage counts, in percent and in order.
var weights = []struct {
	stage string
	from  int
	to    int
}{
	{StageCheck, 0, 1}, {StageZero, 1, 3}, {StageWrite, 3, 68}, {StageVerify, 68, 96}, {StageIdentity, 96, 97},
	{StageSystem, 97, 98}, {StageCommit, 98, 100},
}

// tracker reports the progress of a Write.
type tracker struct {
	job   Job
	now   Progress
	begun time.Time
}

func newTracker(j Job) tracker {
	if j.Progress == nil {
		j.Progress = func(Progress) {}
	}
	return tracker{job: j}
}

func (t *tracker) begin(stage string, total int64) {
	t.begun = t.job.Clock.Now()
	t.now = Progress{Stage: stage, Total: total}
	t.step(0)
}

func (t *tracker) step(done int64) {
	p := &t.now
	p.Done = done
	p.Percent = percent(p.Stage, done, p.Total)
	p.Rate = Rate(done, t.job.Clock.Now().Sub(t.begun))
	p.ETA = 0
	if p.Rate > 0 && p.Total > done {
		p.ETA = time.Duration(float64(p.Total-done) / float64(p.Rate) * float64(time.Second))
	}
	t.job.Progress(*p)
}

func (t *tracker) done() {
	t.now.Percent, t.now.ETA = 100, 0
	t.job.Progress(t.now)
}

func percent(stage string, done, total int64) int {
	for _, w := range weights {
		if w.stage != stage {
			continue
		}
		if total <= 0 {
			return w.from
		}
		return w.from + int(float64(w.to-w.from)*float64(min(done, total))/float64(total))
	}
	return 0
}

// String is such as "write 412/1024 MiB, 96 MiB/s, ETA 0:07".
func (p Progress) String() string {
	if p.Total <= 0 || p.Stage == StageZero || p.Stage == StageIdentity || p.Stage == StageSystem {
		return p.Stage
	}
	s := fmt.Sprintf("%s %d/%d MiB", p.Stage, p.Done>>20, p.Total>>20)
	if p.Rate > 0 {
		s += fmt.Sprintf(", %d MiB/s", p.Rate>>20)
	}
	if p.ETA > 0 {
		eta := p.ETA.Round(time.Second)
		s += fmt.Sprintf(", ETA %d:%02d", int(eta.Minutes()), int(eta.Seconds())%60)
	}
	return s
}
