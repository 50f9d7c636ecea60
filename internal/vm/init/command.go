//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// run runs one command and adds what it printed to sum. A command that fails
// without a failure in its output counts as one, and so does one that tested
// nothing: its tests may have been renamed.
func (c command) run(sum *tally) {
	fmt.Printf("vm: begin %s\n", c.Name)
	started := time.Now()
	got, err := c.start()
	if got.failed == 0 && (err != nil || got.passed == 0) {
		got.failed = 1
	}
	state := "ok"
	if got.failed > 0 {
		state = "FAILED"
	}
	fmt.Printf("vm: end %s %s: %d passed, %d failed, %d skipped, %.1f s", c.Name, state,
		got.passed, got.failed, got.skipped, time.Since(started).Seconds())
	if err != nil {
		fmt.Printf(" (%v)", err)
	}
	fmt.Println()
	sum.add(got)
}

func (c command) start() (tally, error) {
	limit := time.Duration(c.Seconds) * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Dir = c.Dir
	cmd.Env = append([]string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/tmp", "TMPDIR=/tmp", "LANG=C.UTF-8"}, c.Env...)
	// A grandchild may hold the pipe for longer than the command lives.
	cmd.WaitDelay = 5 * time.Second
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	counted := make(chan tally)
	go func() { counted <- copyAndCount(read) }()
	err := cmd.Run()
	_ = write.Close()
	got := <-counted
	if ctx.Err() != nil {
		err = fmt.Errorf("stopped after %s", limit)
	}
	return got, err
}

// copyAndCount copies lines to the console.
func copyAndCount(r io.Reader) tally {
	var got tally
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), 8<<20)
	for lines.Scan() {
		got.line(lines.Text())
		fmt.Fprintln(os.Stdout, lines.Text())
	}
	// What cannot be scanned must still be drained, or the command blocks.
	_, _ = io.Copy(io.Discard, r)
	return got
}
