package sqlguard

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
)

// section is the work of a write under Do. Its transaction holds the lock of the resource's guard row, so a claim of
// that resource in another transaction waits until the section has ended.
type section struct {
	guard    *Guard
	resource string
	tx       *sql.Tx
	over     atomic.Bool // the work has returned
	outer    *section
}

// sectionKey is the context key of the innermost *section.
type sectionKey struct{}

func innermostSection(ctx context.Context) *section {
	s, _ := ctx.Value(sectionKey{}).(*section)
	return s
}

// inSection runs work under a context that belongs to the section of tx.
func (g *Guard) inSection(
	ctx context.Context, tx *sql.Tx, resource string, work func(context.Context, *sql.Tx) error,
) error {
	s := &section{guard: g, resource: resource, tx: tx, outer: innermostSection(ctx)}
	defer s.over.Store(true)
	return work(context.WithValue(ctx, sectionKey{}, s), tx)
}

// sectionOf returns the section of resource that ctx belongs to, or nil. A claim of the resource from there in another
// transaction would wait for itself, and the database cannot detect it, because the section waits for its own code.
//
// A guard does not know its database, so the name of its table stands for it. Handles cannot identify the database:
// *sql.DB and *sqlx.DB differ for one database, and not every type can be compared.
func (g *Guard) sectionOf(ctx context.Context, resource string) *section {
	for s := innermostSection(ctx); s != nil; s = s.outer {
		if s.resource == resource && s.guard.table == g.table && s.guard.dialect == g.dialect && !s.over.Load() {
			return s
		}
	}
	return nil
}

// nestedIn is the error of a claim that would wait for s.
func nestedIn(s *section) error {
	return fmt.Errorf("sqlguard: %w: %q in table %s, whose write has a transaction to be used",
		ErrNested, s.resource, s.guard.table)
}

// refuseNested returns an error if a claim of resource through handle waits for the section that ctx belongs to. It
// does so only if handle is certainly not part of the section's transaction: a pool takes another connection, and
// another transaction is a different one. A *sql.Conn may be the connection of the transaction, and a type of another
// package may wrap it.
func (g *Guard) refuseNested(ctx context.Context, handle Tx, resource string) error {
	s := g.sectionOf(ctx, resource)
	if s == nil {
		return nil
	}
	switch handle := handle.(type) {
	case *sql.Tx:
		if handle != s.tx {
			return nestedIn(s)
		}
	case interface {
		Conn(ctx context.Context) (*sql.Conn, error)
	}:
		return nestedIn(s)
	}
	return nil
}
