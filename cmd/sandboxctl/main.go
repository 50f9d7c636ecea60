// Command sandboxctl is the command line of sandboxd: it runs untrusted Python
// through the daemon's socket and shows what became of it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/sandboxd/sandboxd/internal/apiclient"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := execute(ctx, newApp(os.Stdin, os.Stdout, os.Stderr, os.Getenv), os.Args[1:])
	stop()
	os.Exit(code)
}

// Exit codes, as the help tells them.
const (
	exitPassed    = 0
	exitNotPassed = 1
	exitUsage     = 2
	exitNotRun    = 3
)

const exitHelp = `Exit codes:
  0  passed (for commands that run nothing: done)
  1  not passed: any other verdict (doctor: the default engine lacks something required)
  2  wrong usage: nothing was sent
  3  could not run: no daemon, refused by it, failed in it, or interrupted`

// errNotPassed ends a command whose output has said everything already.
var errNotPassed = errors.New("not passed")

// usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// execute runs one command line and gives its exit code.
func execute(ctx context.Context, a *app, args []string) int {
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitPassed
	case errors.Is(err, errNotPassed):
		return exitNotPassed
	case errors.As(err, &usage) || !a.ran:
		fmt.Fprintf(a.err, "sandboxctl: %v\nTry: sandboxctl help\n", err)
		return exitUsage
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("the timeout of --timeout has passed; what was under way was canceled: %w", context.DeadlineExceeded)
	case ctx.Err() != nil:
		err = errors.New("interrupted; what was under way was canceled")
	case errors.Is(err, apiclient.ErrNoDaemon):
		err = fmt.Errorf("%w; is sandboxd running? (--socket or %s say where)", err, apiclient.SocketVariable)
	}
	fmt.Fprintf(a.err, "sandboxctl: %v\n", err)
	return exitNotRun
}
