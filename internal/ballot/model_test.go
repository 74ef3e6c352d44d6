package ballot_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// elsewhere are the counterexamples that the client's votes have no part in: the rule that each needs is one of the
// scripts, of the engine or of the storage, and is tested there.
var elsewhere = strings.Fields(`
	no-abstention unchecked-run hear-abstaining
	no-floor floor-if-absent floor-no-end floor-no-bound floor-no-cap floor-no-clock floor-short floor-flush
	read-equal raise-counted block-unminted upgrade-unheld
	regain-unconfirmed regain-counted regain-same-id
	passed-forgotten passed-unsettled passed-again yield-to-aside
	one-register`)

func TestEveryCounterexampleOfTheModelHasATest(t *testing.T) {
	known := make(map[string]bool)
	for name := range counterexamples {
		known[name] = true
	}
	for _, name := range elsewhere {
		require.False(t, known[name], "%s is listed twice", name)
		known[name] = true
	}
	for _, name := range refutedCases(t) {
		require.True(t, known[name], "the model refutes %s: add its run to the counterexamples", name)
	}
}

// refutedCases returns the names of those cases of the model whose expected outcome is a counterexample.
func refutedCases(t *testing.T) (names []string) {
	cases, err := os.ReadFile("../../redlock/model/cases.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(cases)) {
		f := strings.Split(line, "|")
		if len(f) == 7 && strings.HasPrefix(strings.TrimSpace(f[5]), "refuted") {
			names = append(names, strings.TrimSpace(f[1]))
		}
	}
	require.NotEmpty(t, names)
	return names
}
