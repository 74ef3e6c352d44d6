package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDoubtedTestsRunWhereTheOthersLetAMutantLive(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), options{
		root: "testdata", in: []string{"sample"}, packages: []string{"./sample"}, doubt: "Above$", parallel: 1, out: &out,
	}))
	for _, line := range []string{
		`# without a mutant ./sample\.TestFails does not pass`,
		`# seed 0: 8 mutants, of which tests reach 6`,
		`\d+	sample/sample\.go:5	negated: n > most	killed	\d+\.\d s	./sample.TestBelow`,
		`\d+	sample/sample\.go:6	deleted: n = most	doubted	\d+\.\d s	./sample.TestAbove`,
		`\d+	sample/sample\.go:5	off by one: n > most	survived	\d+\.\d s	`,
		`\d+	sample/sample\.go:13	missed: 1	killed	\d+\.\d s	./sample.TestOne`,
		`\d+	sample/sample\.go:14	negated: b && n == 1	killed	\d+\.\d s	./sample.TestOne`,
		`\d+	sample/sample\.go:14	dropped: b of b && n == 1	killed	\d+\.\d s	./sample.TestOne`,
		`# killed 4, killed by doubted tests alone 1, survived 1`,
	} {
		require.Regexp(t, "(?m)^"+line+"$", out.String())
	}
}

func TestMutantsOfAScript(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.lua")
	require.NoError(t, os.WriteFile(file, []byte("local a = KEYS[1] -- 2 of\nif a < 'b 3' then\n  a = f(a,\n    b + 1)\n"+
		"  call('x', a)\nelseif a then return a and f(a, b or c) end\n"), 0o600))
	all := make([]mutant, 1)
	require.NoError(t, mutateLua(file, "a.lua", &all))
	var changed []string
	for _, m := range all[1:] {
		changed = append(changed, m.text)
	}
	require.Equal(t, []string{
		"if not (a < 'b 3') then", "if a <= 'b 3' then", "    b + 2)", "",
		"elseif not (a) then return a and f(a, b or c) end", "elseif a then return f(a, b or c) end",
		"elseif a then return a end", "elseif a then return a and f(a, c) end", "elseif a then return a and f(a, b ) end",
	}, changed)
}
