// Package cronlock is a recipe for robfig/cron: each tick of a job runs in one of many processes.
package cronlock

import (
	"context"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/seed74116694/fencelock/ticks"
)

// Jobs adds jobs to a scheduler that each process has, with the same time zone.
type Jobs struct {
	Scheduler *cron.Cron
	Ticks     *ticks.Ticks
	Failed    func(error) // gets the errors of the work and of the claim
}

// Add adds a job by a spec of cron.ParseStandard. At each tick one process does the work, the first to claim it. The
// context of the work carries the fence of the tick. It is ctx, which ends the work at the shutdown, before Cron.Stop
// waits for it.
func (j Jobs) Add(
	ctx context.Context, spec, name string, work func(context.Context) error, opts ...ticks.Option,
) (cron.EntryID, error) {
	schedule, err := cron.ParseStandard(spec)
	if err != nil {
		return 0, err
	}
	if _, every := schedule.(cron.ConstantDelaySchedule); every {
		return 0, fmt.Errorf("cronlock: %q counts from the start of each process, so its ticks have no common time", spec)
	}
	return j.Schedule(ctx, schedule, name, work, opts...), nil
}

// Schedule is Add for a schedule of any kind. Its times must not depend on the process.
func (j Jobs) Schedule(
	ctx context.Context, schedule cron.Schedule, name string, work func(context.Context) error, opts ...ticks.Option,
) cron.EntryID {
	return j.Scheduler.Schedule(schedule, cron.FuncJob(func() {
		due := ticks.Nearest(schedule.Next, time.Now().In(j.Scheduler.Location())) // cron does not say which tick it is
		if _, err := j.Ticks.Do(ctx, name, due, work, opts...); err != nil {
			j.Failed(err)
		}
	}))
}
