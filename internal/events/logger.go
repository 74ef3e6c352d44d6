package events

import (
	"context"
	"log/slog"
)

// Default returns a logger that writes each line to the logger that slog.Default returns at that moment. A program may
// set its logger after it has made its lockers.
func Default() *slog.Logger { return slog.New(current{}) }

type current struct{}

func (current) Enabled(ctx context.Context, level slog.Level) bool {
	return slog.Default().Enabled(ctx, level)
}

func (current) Handle(ctx context.Context, line slog.Record) error {
	return slog.Default().Handler().Handle(ctx, line)
}

func (current) WithAttrs(all []slog.Attr) slog.Handler {
	return slog.Default().Handler().WithAttrs(all)
}

func (current) WithGroup(name string) slog.Handler { return slog.Default().Handler().WithGroup(name) }
