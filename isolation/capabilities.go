package isolation

import "fmt"

// capabilityNumbers are those of linux/capability.h for what specs name.
var capabilityNumbers = map[string]int{
	"CAP_DAC_READ_SEARCH": 2, "CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7,
}

// CapabilityNumbers gives capabilities as the kernel counts them. One that is not
// known is an error: it must not be dropped, or kept, in silence.
func CapabilityNumbers(names []string) ([]int, error) {
	numbers := make([]int, 0, len(names))
	for _, name := range names {
		number, ok := capabilityNumbers[name]
		if !ok {
			return nil, fmt.Errorf("capability %s has no number here", name)
		}
		numbers = append(numbers, number)
	}
	return numbers, nil
}
