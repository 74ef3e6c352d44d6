package testkit

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var aclRule = regexp.MustCompile(`(?m)^    (ACL SETUSER .*)$`)

// ACLEachServer is the heading of the line of SECURITY.md that the others add to.
const ACLEachServer = "Each server:"

// ACLLine returns the rule of SECURITY.md under a heading that makes the locks' user of such a server, together with
// what it adds to. root is the folder of the page.
func ACLLine(t testing.TB, root, heading string) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "\n"+heading)
	require.True(t, found, heading)
	line := aclRule.FindStringSubmatch(rest)
	require.NotNil(t, line, heading)
	words := strings.Fields(line[1])
	if !slices.Contains(words, "reset") {
		return append(ACLLine(t, root, ACLEachServer), words[3:]...)
	}
	return words
}
