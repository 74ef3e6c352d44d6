package redisguard

import (
	"fmt"
	"strings"

	"github.com/seed74116694/fencelock/fencing"
)

// registerKey returns the name of the hash of resource's registers in the slot of tag.
func registerKey(resource, tag string) string { return "fencing:{" + tag + "}:" + resource }

// commonTag returns the hash tag of keys, or a *fencing.MalformedError if they have no common one.
func commonTag(keys []string) (string, error) {
	if len(keys) == 0 {
		return "", &fencing.MalformedError{What: "key", Reason: "a script needs at least one"}
	}
	tag, err := hashTag(keys[0])
	if err != nil {
		return "", err
	}
	for _, key := range keys[1:] {
		other, err := hashTag(key)
		if err != nil {
			return "", err
		}
		if other != tag {
			return "", badKey(key, fmt.Sprintf("its hash tag is %q, that of the first key %q", other, tag))
		}
	}
	return tag, nil
}

// hashTag returns the part of key that decides its slot in a Cluster: the text between the first { and the first }
// behind it, or the whole key if that text is empty or missing. Keys of one tag are in one slot.
//
// A whole key that has a } cannot be the tag of another key, as that tag would end there; such a key is refused on a
// single master too, where it would work until the data moves to a Cluster.
func hashTag(key string) (string, error) {
	if key == "" {
		return "", badKey(key, "it is empty")
	}
	if _, after, found := strings.Cut(key, "{"); found {
		if tag, _, closed := strings.Cut(after, "}"); closed && tag != "" {
			return tag, nil
		}
	}
	if strings.Contains(key, "}") {
		return "", badKey(key, "it has a } but no hash tag")
	}
	return key, nil
}

func badKey(key, reason string) error {
	return &fencing.MalformedError{What: "key", Input: clip(key), Reason: reason}
}

// clip bounds an input that an error shows.
func clip(text string) string {
	const shown = 64
	if len(text) > shown {
		return text[:shown] + "..."
	}
	return text
}
