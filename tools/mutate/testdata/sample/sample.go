// Package sample has code to be mutated.
package sample

func cut(n, most int) int {
	if n > most {
		n = most
	}
	return n
}
