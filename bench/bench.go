package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// bench is a run that can begin: all checks of its input have passed.
type bench struct {
	cfg     config
	masters *masters
	team    team
	stage   *stage
	svg     *os.File // nil without a picture
}

func prepare(ctx context.Context, cfg config) (_ *bench, err error) {
	b := &bench{cfg: cfg}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.masters, err = startMasters(cfg); err != nil {
		return nil, err
	}
	if b.team, err = newTeam(ctx, cfg.clients+1, b.masters); err != nil {
		return nil, err
	}
	var picture *timeline
	if cfg.svg != "" {
		if b.svg, err = os.Create(cfg.svg); err != nil {
			return nil, fmt.Errorf("-svg: %w", err)
		}
		picture = new(timeline)
	}
	b.stage = newStage(cfg.names, picture)
	return b, nil
}

func (b *bench) close() {
	if b.svg != nil {
		_ = b.svg.Close() // what matters was reported by draw
	}
	b.team.close()
	if b.masters != nil {
		b.masters.close()
	}
}

// work runs the clients for the configured time, and returns when all of them are done.
func (b *bench) work(ctx context.Context, progressTo io.Writer) result {
	began := time.Now()
	end := began.Add(b.cfg.length)
	working, stopWorking := context.WithDeadline(ctx, end)
	defer stopWorking()

	over := make(chan struct{})
	var watching, clients sync.WaitGroup
	p := newProgress(progressTo, b.cfg.length, b.team, b.stage.score)
	watching.Go(func() { p.run(over) })

	holder, others := b.team[len(b.team)-1], b.team[:len(b.team)-1]
	playing, stopPlaying := context.WithCancel(ctx)
	defer stopPlaying()
	servers := &health{client: others[0], gone: stopPlaying}
	watching.Go(func() { servers.watch(ctx, working) })
	workers := make([]*worker, len(others)*workersPerClient)
	for i := range workers {
		w := &worker{stage: b.stage, client: others[i/workersPerClient], beat: beat(b.stage.names, i, len(workers))}
		workers[i] = w
		clients.Go(func() { w.work(playing, working) })
	}
	s := &staller{stage: b.stage, holder: holder, next: others[0]}
	clients.Go(func() { s.play(playing, end) })
	clients.Wait()
	close(over)
	watching.Wait()
	r := b.result(workers, time.Since(began), ctx.Err() != nil)
	if err := servers.last; err != nil {
		r.ServersGone = err.Error()
	}
	return r
}

func (b *bench) result(workers []*worker, elapsed time.Duration, interrupted bool) result {
	r := result{
		Servers: b.masters.addrs, Embedded: len(b.masters.embedded) > 0,
		Clients: b.cfg.clients, Workers: len(workers), Names: b.cfg.names,
		Seconds: elapsed.Seconds(), Interrupted: interrupted,
	}
	all := new(waits)
	for _, w := range workers {
		all.merge(&w.waits)
	}
	r.take(all, b.team.stats(), b.stage)
	return r
}
