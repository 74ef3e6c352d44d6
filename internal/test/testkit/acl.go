package testkit

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var aclRule = regexp.MustCompile(`(?m)^    (ACL SETUSER .*)$`)

// ACLLine returns the line of SECURITY.md under a heading that makes the locks' user of such a server, as it is pasted.
// root is the folder of the page.
func ACLLine(t testing.TB, root, heading string) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "\n"+heading)
	require.True(t, found, heading)
	line := aclRule.FindStringSubmatch(rest)
	require.NotNil(t, line, heading)
	return strings.Fields(line[1])
}
