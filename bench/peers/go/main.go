// The worker for the peers in Go. The table in bench/drive/workers.py describes its modes and output.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

type mutex interface {
	lock() error
	unlock() error
}

type peer func(name string) mutex

var (
	background = context.Background()
	in         = bufio.NewReader(os.Stdin)
)

type bsm struct {
	client *redislock.Client
	name   string
	lease  time.Duration
	held   *redislock.Lock
}

func (m *bsm) lock() (err error) {
	// The README's back-off. Without a deadline, Obtain gives up after the lease.
	ctx, cancel := context.WithTimeout(background, time.Hour)
	defer cancel()
	retry := redislock.LinearBackoff(100 * time.Millisecond)
	m.held, err = m.client.Obtain(ctx, m.name, m.lease, &redislock.Options{RetryStrategy: retry})
	return
}

func (m *bsm) unlock() error { return m.held.Release(background) }

type redsyncMutex struct{ *redsync.Mutex }

func (m redsyncMutex) lock() error { return m.Lock() }

func (m redsyncMutex) unlock() error {
	_, err := m.Unlock()
	return err
}

type etcd struct{ *concurrency.Mutex }

func (m etcd) lock() error   { return m.Lock(background) }
func (m etcd) unlock() error { return m.Unlock(background) }

func connect(name string, lease time.Duration, contended bool) peer {
	if name == "etcd" {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Getenv("BENCH_ETCD")}})
		check(err)
		session := func() *concurrency.Session {
			session, err := concurrency.NewSession(client, concurrency.WithTTL(max(1, int(lease.Seconds()))))
			check(err)
			return session
		}
		if !contended {
			one := session()
			return func(name string) mutex { return etcd{concurrency.NewMutex(one, "/"+name)} }
		}
		// A session waits and holds, so competing mutexes have one each.
		return func(name string) mutex { return etcd{concurrency.NewMutex(session(), "/"+name)} }
	}
	options, err := redis.ParseURL(os.Getenv("BENCH_REDIS"))
	check(err)
	client := redis.NewClient(options)
	if name == "bsm-redislock" {
		locker := redislock.New(client)
		return func(name string) mutex { return &bsm{client: locker, name: name, lease: lease} }
	}
	sync := redsync.New(goredis.NewPool(client))
	return func(name string) mutex {
		return redsyncMutex{sync.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(1_000_000))}
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func handshake() {
	fmt.Println("ready")
	_, _ = in.ReadString('\n')
}

func cycles(m mutex, seconds float64) []string {
	var times []string
	last := time.Now()
	end := last.Add(time.Duration(seconds * 1e9))
	for last.Before(end) {
		check(m.lock())
		check(m.unlock())
		now := time.Now()
		times = append(times, strconv.FormatInt(now.Sub(last).Nanoseconds(), 10))
		last = now
	}
	return times
}

func turns(connected peer, name string, count int, seconds float64, hold time.Duration) []string {
	mutexes := make([]mutex, count)
	for i := range mutexes {
		mutexes[i] = connected(name)
	}
	end := time.Now().Add(time.Duration(seconds * 1e9))
	events := make([][]string, count)
	var all sync.WaitGroup
	for i, m := range mutexes {
		all.Go(func() {
			for time.Now().Before(end) {
				asked := time.Now().UnixNano()
				check(m.lock())
				granted := time.Now().UnixNano()
				if hold > 0 {
					time.Sleep(hold)
				}
				leaving := time.Now().UnixNano()
				check(m.unlock())
				events[i] = append(events[i], fmt.Sprintf("e %d %d %d %d", i, asked, granted, leaving))
			}
		})
	}
	all.Wait()
	var lines []string
	for _, mine := range events {
		lines = append(lines, mine...)
	}
	return lines
}

func many(connected peer, name string, count int, seconds float64) int64 {
	end := time.Now().Add(time.Duration(seconds * 1e9))
	var ops atomic.Int64
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() {
			for n := i * 625; time.Now().Before(end); n++ {
				m := connected(fmt.Sprintf("%s:%d", name, n%10_000))
				check(m.lock())
				check(m.unlock())
				ops.Add(1)
			}
		})
	}
	all.Wait()
	return ops.Load()
}

func main() {
	mode, name := os.Args[2], os.Args[3]
	var number [5]float64
	for i := range number {
		var err error
		number[i], err = strconv.ParseFloat(os.Args[4+i], 64)
		check(err)
	}
	count, seconds, warm := int(number[0]), number[1], number[4]
	hold, lease := time.Duration(number[2]*1e6), time.Duration(number[3]*1e6)
	connected := connect(os.Args[1], lease, mode != "many")
	switch mode {
	case "uncontended":
		m := connected(name)
		cycles(m, warm)
		handshake()
		fmt.Println("ns " + strings.Join(cycles(m, seconds), " "))
		_, _ = in.ReadString('\n')
	case "turns":
		turns(connected, name, count, warm, 0)
		handshake()
		fmt.Println(strings.Join(append(turns(connected, name, count, seconds, hold), "done"), "\n"))
	case "hold":
		m := connected(name)
		handshake()
		check(m.lock())
		fmt.Println("granted", time.Now().UnixNano())
		_, _ = in.ReadString('\n')
		leaving := time.Now().UnixNano()
		check(m.unlock())
		fmt.Println("released", leaving)
	case "idle":
		check(connected(name).lock())
		for range count {
			m := connected(name)
			go func() { check(m.lock()) }()
		}
		handshake()
	case "many":
		many(connected, name, count, warm)
		handshake()
		fmt.Println("ops", many(connected, name, count, seconds))
		_, _ = in.ReadString('\n')
	default:
		fmt.Fprintln(os.Stderr, "no mode", mode)
		os.Exit(2)
	}
}
