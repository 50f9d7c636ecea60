package dockertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStart_LeavesNothing also proves that an Engine starts here.
func TestStart_LeavesNothing(t *testing.T) {
	var socket string
	t.Run("engine", func(t *testing.T) { socket = strings.TrimPrefix(Start(t), "unix://") })
	if socket == "" {
		return // not here
	}
	dir := filepath.Dir(socket)
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil || strings.Contains(string(mounts), dir) {
		t.Errorf("%s is left behind", dir)
	}
	groups, err := filepath.Glob("/sys/fs/cgroup/*/" + filepath.Base(dir))
	if err != nil || len(groups) > 0 {
		t.Errorf("left %v, %v", groups, err)
	}
}
