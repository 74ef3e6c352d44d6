package valkeyconf_test

import (
	"fmt"

	"github.com/valkey-io/valkey-go"

	"github.com/seed74116694/fencelock/rwlock/goredisconf/valkeyconf"
)

// The options of a client of valkey-go, for rwlock.Dial.
func ExampleFrom() {
	addr, base, ignored, err := valkeyconf.From(valkey.ClientOption{
		InitAddress: []string{"10.0.0.1:26379", "10.0.0.2:26379"}, DisableCache: true,
		Sentinel: valkey.SentinelOption{MasterSet: "locks"},
	})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%q %v %s\n", addr, base.InitAddress, base.Sentinel.MasterSet)
	fmt.Println("not for locks:", ignored)
	// Output:
	// "" [10.0.0.1:26379 10.0.0.2:26379] locks
	// not for locks: [DisableCache]
}
