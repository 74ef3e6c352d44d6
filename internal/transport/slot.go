package transport

import (
	"strconv"
	"strings"
)

// slotCount is the number of slots of a Cluster.
const slotCount = 16384

// slotOf returns the slot of a key or of a channel: the CRC-16 of the text between its first braces, or of the whole
// key if that text is empty.
func slotOf(key string) uint16 {
	if _, rest, opened := strings.Cut(key, "{"); opened {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return crc % slotCount
}

// crcTable is the table of the CRC-16 with the polynomial 0x1021 (XMODEM).
var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			if crc <<= 1; carry {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()

// channelIn returns base with a hash tag that puts it into one of a node's slots. The result depends only on the slots,
// not on the server that owns them, so it survives a failover.
func channelIn(base string, owned func(slot uint16) bool) (channel string, ok bool) {
	for i := range 64 * slotCount {
		channel = base + ":{" + strconv.Itoa(i) + "}"
		if owned(slotOf(channel)) {
			return channel, true
		}
	}
	return "", false
}
