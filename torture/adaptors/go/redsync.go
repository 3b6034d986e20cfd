// The adaptor of redsync on Redis. torture/README.md has the words.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var held *redsync.Mutex

func main() {
	options, err := redis.ParseURL(os.Getenv("TORTURE_ADDRESS"))
	if err != nil {
		panic(err)
	}
	client := redsync.New(goredis.NewPool(redis.NewClient(options)))
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		said, err := speak(client, strings.Split(in.Text(), " "))
		if err != nil {
			said = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(said)
	}
}

func speak(client *redsync.Redsync, words []string) (string, error) {
	ctx := context.Background()
	switch words[0] {
	case "lock", "try":
		held = client.NewMutex(words[1], settings()...)
		var err error
		if words[0] == "try" {
			err = held.TryLock()
		} else {
			if len(words) > 2 {
				limit, _ := strconv.Atoi(words[2])
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Duration(limit)*time.Millisecond)
				defer cancel()
			}
			err = held.LockContext(ctx)
		}
		var taken *redsync.ErrTaken
		switch {
		case err == nil:
			return "granted", nil
		case errors.As(err, &taken) && words[0] == "try":
			return "busy", nil
		case errors.As(err, &taken), errors.Is(err, context.DeadlineExceeded), errors.Is(err, redsync.ErrFailed):
			return "timeout", nil // all its tries failed
		}
		return "", err
	case "held?":
		// As its documents advise: `Valid`, which asks the server, is deprecated.
		if time.Now().Before(held.Until()) {
			return "yes", nil
		}
		return "no", nil
	case "unlock":
		ok, err := held.UnlockContext(ctx)
		var failed *redsync.RedisError
		if errors.As(err, &failed) {
			return "", err
		}
		return map[bool]string{true: "ok", false: "lost"}[ok], nil
	case "stall":
		milliseconds, _ := strconv.Atoi(words[1])
		time.Sleep(time.Duration(milliseconds) * time.Millisecond)
		return "ok", nil
	}
	os.Exit(1) // die
	return "", nil
}

func settings() (options []redsync.Option) {
	if lease, err := strconv.Atoi(os.Getenv("LEASE_MS")); err == nil {
		options = append(options, redsync.WithExpiry(time.Duration(lease)*time.Millisecond))
	}
	if tries, err := strconv.Atoi(os.Getenv("TRIES")); err == nil {
		options = append(options, redsync.WithTries(tries))
	}
	return options
}
