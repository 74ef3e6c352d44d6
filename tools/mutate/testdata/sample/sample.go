// Package sample has code to be mutated.
package sample

func cut(n, most int) int {
	if n > most {
		n = most
	}
	return n
}

func one(n int, b bool) bool {
	switch n {
	case 1:
		return b && n == 1
	}
	return false
}
