package reentrant

// Ends returns how many ends a nested hold keeps for its contexts.
func Ends(h *Hold) int { return h.contexts.Len() }
