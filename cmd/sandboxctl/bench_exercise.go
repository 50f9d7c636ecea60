package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sandboxd/sandboxd/sandbox"
)

// benchAssertions is how many each exercise's tests have.
const benchAssertions = 3

const (
	benchSolution = `class Tally:
    def __init__(self):
        self.counts = {}

    def add(self, word):
        self.counts[word] = self.counts.get(word, 0) + 1
        return self.counts[word]

def longest(words):
    return max(words, key=len)
`
	benchTests = `assert Tally().add("a") == 1
assert longest(["one", "three"]) == "three"
assert [longest([w]) for w in "ab"] == ["a", "b"]
`
	numpySolution = `import numpy as np

def pairs(values):
    a = np.asarray(values)
    return np.stack((a[:-1], a[1:]), axis=1).tolist()

def mean(values):
    a = np.asarray(values, dtype=float)
    total = a.sum()
    return float(total / a.size)
`
	numpyTests = `assert pairs([1, 2, 3]) == [[1, 2], [2, 3]]
assert mean([1, 2, 3]) == 2.0
assert pairs([1]) == []
`
)

const (
	plainMemory = 256 << 20
	// numpyMemory is address space, of which the numerical libraries reserve far
	// more than they use.
	numpyMemory = 4 << 30
)

// exercise is what both sides run.
type exercise struct {
	solution, tests string
	memory          int64             // plain's address space
	environment     map[string]string // plain's, beside what it inherits
}

func baseExercise() exercise {
	return exercise{solution: benchSolution, tests: benchTests, memory: plainMemory}
}

// numpyExercise gives plain one thread for linear algebra, which is what its limit
// of no processes leaves an ordinary user, and saves it time as root.
func numpyExercise() exercise {
	return exercise{
		solution: numpySolution, tests: numpyTests, memory: numpyMemory,
		environment: map[string]string{"OPENBLAS_NUM_THREADS": "1"},
	}
}

// ofSource is the base exercise with a solution of a certain size. Comment lines
// fill it: they cost both sides reading and carrying, not compiling.
func ofSource(size int) exercise {
	e := baseExercise()
	const line = "# a line of a longer solution, which somebody has to carry and read\n"
	if missing := size - len(e.solution); missing > 0 {
		e.solution += strings.Repeat(line, missing/len(line)+1)[:missing-1] + "\n"
	}
	return e
}

// ofOutput is the base exercise with that much on standard output.
func ofOutput(size int) exercise {
	e := baseExercise()
	if size > 0 {
		e.solution += fmt.Sprintf("print(\"x\" * %d)\n", size-1)
	}
	return e
}

// wire is the exercise as bytes of HTTP, made once and sent often.
func (e exercise) wire(engine string, limits sandbox.Limits) ([]byte, error) {
	spec := sandbox.Spec{
		Solution: &e.solution, Tests: &e.tests, Limits: limits,
		Engine: engine, Integrity: sandbox.IntegrityShared,
	}
	body, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode exercise: %w", err)
	}
	head := fmt.Sprintf("POST /v1/runs HTTP/1.1\r\nHost: sandboxd\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body))
	return append([]byte(head), body...), nil
}
