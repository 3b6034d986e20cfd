// The adaptor of redsync on Redis.
package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type library struct {
	client   *redsync.Redsync
	settings []redsync.Option
	held     *redsync.Mutex
}

func main() {
	address := strings.TrimPrefix(os.Getenv("TORTURE_ADDRESS"), "redis://")
	pool := goredis.NewPool(redis.NewClient(&redis.Options{Addr: address}))
	var settings []redsync.Option
	set("LEASE_MS", func(lease int) { settings = append(settings, redsync.WithExpiry(milliseconds(lease))) })
	set("TRIES", func(tries int) { settings = append(settings, redsync.WithTries(tries)) })
	run(&library{client: redsync.New(pool), settings: settings})
}

func (l *library) Lock(ctx context.Context, name string) (bool, error) {
	l.held = l.client.NewMutex(name, l.settings...)
	return isGranted(l.held.LockContext(ctx))
}

func (l *library) TryLock(ctx context.Context, name string) (bool, error) {
	l.held = l.client.NewMutex(name, l.settings...)
	return isGranted(l.held.TryLockContext(ctx))
}

func isGranted(err error) (bool, error) {
	_, isTaken := errors.AsType[*redsync.ErrTaken](err)
	if isTaken || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redsync.ErrFailed) {
		return false, nil
	}
	return err == nil, err
}

// IsHeld asks `Until`, as redsync's documents advise: `Valid`, which asks the server, is deprecated.
func (l *library) IsHeld() bool { return time.Now().Before(l.held.Until()) }

func (l *library) Unlock(ctx context.Context) (bool, error) {
	isHeld, err := l.held.UnlockContext(ctx)
	if _, isFailed := errors.AsType[*redsync.RedisError](err); isFailed {
		return false, err
	}
	return isHeld, nil
}
