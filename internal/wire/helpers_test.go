package wire_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

const (
	hold  = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	other = "01ARZ3NDEKTSV4RRFFQ69G5FAW"
	us    = 1_700_000_000_000_000
)

// refusal is an error that a server replies.
type refusal string

// result makes the reply with these values: ints, texts, lists, refusals, nil, and floats.
func result(value any) rueidis.RedisResult {
	var message rueidis.RedisMessage
	if err := message.CacheUnmarshalView(encode(make([]byte, 7), value)); err != nil {
		panic(err)
	}
	return rueidis.NewResult(message, nil)
}

// reply makes the reply that is a list of these values.
func reply(values ...any) rueidis.RedisResult { return result(values) }

// line makes the reply that is a text with these values.
func line(values ...any) rueidis.RedisResult {
	text := fmt.Sprintln(values...)
	return result(text[:len(text)-1])
}

// encode writes a value in the form in which rueidis caches a message: a type, a length or a number, and the content.
func encode(to []byte, value any) []byte {
	head := func(kind byte, n int) { to = binary.BigEndian.AppendUint64(append(to, kind), uint64(n)) }
	switch v := value.(type) {
	case nil:
		head('_', 0)
	case int:
		head(':', v)
	case string:
		head('$', len(v))
		to = append(to, v...)
	case refusal:
		head('-', len(v))
		to = append(to, v...)
	case json.Number:
		n, err := v.Int64()
		if err == nil {
			return encode(to, int(n))
		}
		head(',', len(v))
		to = append(to, v...)
	case []any:
		head('*', len(v))
		for _, one := range v {
			to = encode(to, one)
		}
	}
	return to
}

// fromJSON makes the reply that a JSON text describes. A fuzzer changes such a text easily.
func fromJSON(text string) (r rueidis.RedisResult, value any, ok bool) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return r, nil, false
	}
	switch value.(type) {
	case bool, map[string]any:
		return r, nil, false
	}
	return result(value), value, true
}

// integer returns a number of a list, or of a line.
func integer(reply any, i int) (n int64, ok bool) {
	values, _ := reply.([]any)
	if line, is := reply.(string); is {
		for _, field := range strings.Split(line, " ") {
			values = append(values, json.Number(field))
		}
	}
	if i >= len(values) {
		return 0, false
	}
	number, _ := values[i].(json.Number)
	n, err := number.Int64()
	return n, err == nil
}

func TestTheseRepliesAreThoseOfAServer(t *testing.T) {
	list, err := reply(1, "text", nil, []any{2}).ToArray()
	require.NoError(t, err)
	n, err := list[0].ToInt64()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	text, err := list[1].ToString()
	require.NoError(t, err)
	require.Equal(t, "text", text)
	require.True(t, list[2].IsNil())
	require.True(t, list[3].IsArray())
	require.EqualError(t, result(refusal("WRONGTYPE no")).Error(), "WRONGTYPE no")
	float, _, ok := fromJSON("[1.5]")
	require.True(t, ok)
	list, err = float.ToArray()
	require.NoError(t, err)
	require.True(t, list[0].IsFloat64())
}
