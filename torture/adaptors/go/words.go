// The six words for a library in Go: read from the standard input, answered on the standard output.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

type Words interface {
	Lock(ctx context.Context, name string) (isGranted bool, err error)
	TryLock(ctx context.Context, name string) (isGranted bool, err error)
	IsHeld() bool
	Unlock(ctx context.Context) (isHeld bool, err error)
}

// set hands on the judge's setting, if there is one.
func set(name string, setter func(int)) {
	if value, err := strconv.Atoi(os.Getenv(name)); err == nil {
		setter(value)
	}
}

func milliseconds(count int) time.Duration { return time.Duration(count) * time.Millisecond }

func run(library Words) {
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		said, err := speak(library, strings.Split(in.Text(), " "))
		if err != nil {
			said = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(said)
	}
}

func speak(library Words, words []string) (string, error) {
	ctx := context.Background()
	limit, _ := strconv.Atoi(words[len(words)-1])
	switch words[0] {
	case "lock":
		if len(words) > 2 {
			limited, cancel := context.WithTimeout(ctx, milliseconds(limit))
			defer cancel()
			ctx = limited
		}
		isGranted, err := library.Lock(ctx, words[1])
		return either(isGranted, "granted", "timeout"), err
	case "try":
		isGranted, err := library.TryLock(ctx, words[1])
		return either(isGranted, "granted", "busy"), err
	case "held?":
		return either(library.IsHeld(), "yes", "no"), nil
	case "unlock":
		isHeld, err := library.Unlock(ctx)
		return either(isHeld, "ok", "lost"), err
	case "stall":
		time.Sleep(milliseconds(limit))
		return "ok", nil
	}
	os.Exit(1) // die
	return "", nil
}

func either(isTrue bool, yes, no string) string {
	if isTrue {
		return yes
	}
	return no
}
