package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// checkIDs refuses a range of host ids that touches the machine's own users or
// what other programs were promised (passwd(5), subuid(5)).
func checkIDs(first, count uint32) error {
	last := uint64(first) + uint64(count) - 1
	if first == 0 || last >= 1<<32-1 {
		return fmt.Errorf("ids %d to %d are no usable range", first, last)
	}
	const nobody = 65534 // its reserve of the root file system is often the last
	if uint64(first) <= nobody && nobody <= last {
		return fmt.Errorf("ids %d to %d include %d, which belongs to nobody", first, last, nobody)
	}
	for _, file := range []struct {
		path  string
		id    int // field with the first id
		count int // field with their number, -1 for one
	}{{"/etc/passwd", 2, -1}, {"/etc/group", 2, -1}, {"/etc/subuid", 1, 2}, {"/etc/subgid", 1, 2}} {
		err := eachRange(file.path, file.id, file.count, func(owner string, from, to uint64) error {
			if from <= last && uint64(first) <= to {
				return fmt.Errorf("ids %d to %d overlap with those of %s in %s (%d to %d); choose another range", first, last, owner, file.path, from, to)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eachRange calls f for each line of a file of the passwd kind. A file that does
// not exist has no lines; lines that make no sense are nobody's range.
func eachRange(path string, idField, countField int, f func(owner string, from, to uint64) error) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) <= max(idField, countField) {
			continue
		}
		from, err := strconv.ParseUint(fields[idField], 10, 32)
		if err != nil {
			continue
		}
		to := from
		if countField >= 0 {
			n, err := strconv.ParseUint(fields[countField], 10, 32)
			if err != nil || n == 0 {
				continue
			}
			to = from + n - 1
		}
		if err := f(fields[0], from, to); err != nil {
			return err
		}
	}
	return lines.Err()
}
