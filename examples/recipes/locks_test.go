package recipes_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"database/sql"
	"encoding/pem"
	"fmt"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caddyserver/certmagic"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"github.com/pressly/goose/v3/lock/locktesting"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/seed74116694/fencelock/examples/recipes/certlock"
	"github.com/seed74116694/fencelock/examples/recipes/gooselock"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/locktest"
	"github.com/seed74116694/fencelock/rwlock"
)

// migrations are such that a second application fails.
func migrations() fstest.MapFS {
	all := fstest.MapFS{}
	for i := range 5 {
		text := fmt.Sprintf("-- +goose Up\nCREATE TABLE t%d (id INT);\nSELECT pg_sleep(0.01);\n", i)
		all[fmt.Sprintf("%05d_t.sql", i+1)] = &fstest.MapFile{Data: []byte(text)}
	}
	return all
}

// providers returns a function that makes providers of goose over one database, as in processes of their own.
func providers(t *testing.T, opts func() []goose.ProviderOption) func(*testing.T) *goose.Provider {
	address := postgres.Database(t)
	return func(t *testing.T) *goose.Provider {
		db := expect.NoError(sql.Open("pgx", address)).In(t)
		provider := expect.NoError(goose.NewProvider(goose.DialectPostgres, db, migrations(), opts()...)).In(t)
		t.Cleanup(func() { require.NoError(t, provider.Close()) })
		return provider
	}
}

// goose's own tests of a locker.
func TestGoose(t *testing.T) {
	locks := locktest.New(t)
	newLocker := func() *gooselock.Locker { return gooselock.New(locks.Another(), "migrations") }
	locktesting.TestProviderLocking(t, providers(t, func() []goose.ProviderOption {
		return []goose.ProviderOption{goose.WithLocker(newLocker())}
	}))
	locktesting.TestConcurrentLocking(t, nil, func(*testing.T) lock.Locker { return newLocker() }, 100*time.Millisecond)
	require.ErrorContains(t, newLocker().Unlock(t.Context(), nil), "without Lock")
}

// The same without a locker of goose.
func TestMigrationsUnderDo(t *testing.T) {
	locks := locktest.New(t)
	newProvider := providers(t, func() []goose.ProviderOption { return nil })
	var applied atomic.Int32
	var all sync.WaitGroup
	for range 5 {
		provider, locker := newProvider(t), locks.Another()
		all.Go(func() {
			if err := locker.Do(t.Context(), "migrations", func(ctx context.Context) error {
				results, err := provider.Up(ctx)
				applied.Add(int32(len(results)))
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 5, applied.Load())
}

// A migration under a lock that was lost is reported, and the Unlock of the lost one leaves the lock of the next alone.
func TestGooseIsToldOfALoss(t *testing.T) {
	locks := locktest.New(t)
	l := gooselock.New(locks.Locker, "migrations")
	require.NoError(t, l.Lock(t.Context(), nil))
	locks.Lose("migrations")
	require.NoError(t, l.Lock(t.Context(), nil))
	require.ErrorIs(t, l.Unlock(t.Context(), nil), rwlock.ErrLost)
	_, err := locks.Another().TryLock(t.Context(), "migrations")
	require.ErrorIs(t, err, rwlock.ErrNotAcquired)
	require.NoError(t, l.Unlock(t.Context(), nil))
}

// authority is an issuer of certificates that counts them, and issues the first one when another process waits.
type authority struct {
	key     *ecdsa.PrivateKey
	waiting <-chan struct{}
	issued  atomic.Int32
}

func (a *authority) IssuerKey() string { return "local" }

func (a *authority) Issue(ctx context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	a.issued.Add(1)
	select {
	case <-a.waiting:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "local"}, DNSNames: request.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, request.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}, nil
}

// Two processes need a certificate at once. One obtains it, and the other finds it.
func TestCertmagic(t *testing.T) {
	waits := make(chan struct{})
	second := sync.OnceFunc(func() { close(waits) })
	trace := rwlock.WithTrace(&rwlock.Trace{Waiting: func(_ context.Context, e rwlock.TraceEvent) {
		if e.Name == "certmagic/issue_cert_example.test" {
			second()
		}
	}})
	locks := locktest.New(t, trace)
	issuer := &authority{key: expect.NoError(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).In(t), waiting: waits}
	folder := t.TempDir()
	var all sync.WaitGroup
	var configs []*certmagic.Config
	for _, locker := range []*rwlock.Locker{locks.Locker, locks.Another(trace)} {
		var config *certmagic.Config
		cache := certmagic.NewCache(certmagic.CacheOptions{
			GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
			Logger:           zap.NewNop(),
		})
		t.Cleanup(cache.Stop)
		config = certmagic.New(cache, certmagic.Config{
			Storage: certlock.New(&certmagic.FileStorage{Path: folder}, locker),
			Issuers: []certmagic.Issuer{issuer}, Logger: zap.NewNop(),
		})
		configs = append(configs, config)
	}
	for _, config := range configs {
		all.Go(func() {
			if err := config.ObtainCertSync(t.Context(), "example.test"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, issuer.issued.Load())
	for _, config := range configs {
		expect.NoError(config.CacheManagedCertificate(t.Context(), "example.test")).In(t)
		require.NoError(t, config.RenewCertSync(t.Context(), "example.test", false))
	}
	require.EqualValues(t, 1, issuer.issued.Load(), "it is not due")
}

func TestCertmagicsLocks(t *testing.T) {
	locks := locktest.New(t)
	data := &certmagic.FileStorage{Path: t.TempDir()}
	one, other := certlock.New(data, locks.Locker), certlock.New(data, locks.Another())
	require.True(t, expect.NoError(one.TryLock(t.Context(), "n")).In(t))
	require.False(t, expect.NoError(other.TryLock(t.Context(), "n")).In(t))
	require.NoError(t, one.Unlock(t.Context(), "n"))
	require.ErrorContains(t, one.Unlock(t.Context(), "n"), "without Lock")
	require.NoError(t, other.Lock(t.Context(), "n"))
	locks.Lose("certmagic/n")
	require.NoError(t, other.Lock(t.Context(), "n"))
	require.NoError(t, other.Unlock(t.Context(), "n"), "the lost one")
	require.False(t, expect.NoError(one.TryLock(t.Context(), "n")).In(t), "the newer one is kept")
	require.NoError(t, other.Unlock(t.Context(), "n"))
	require.NoError(t, locks.Close())
	_, err := one.TryLock(t.Context(), "n")
	require.ErrorIs(t, err, rwlock.ErrClosed)
	var _ certmagic.TryLocker = one
}
