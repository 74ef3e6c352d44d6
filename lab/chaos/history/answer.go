package history

// Answer is what a call has returned whose result its caller could foresee: of a lock that only its own process uses,
// or of one of which it knew enough.
type Answer struct {
	Process int      `json:"process"`
	Slot    int      `json:"slot,omitempty"`
	Worker  int      `json:"worker"`
	Name    string   `json:"name"`
	Call    string   `json:"call"` // and what was known before it
	Called  int64    `json:"called"`
	Ended   int64    `json:"ended"`
	Got     string   `json:"got"`              // nil, or the cause of the error
	Want    []string `json:"want,omitempty"`   // what it may return where no fault strikes; nothing: anything
	Never   []string `json:"never,omitempty"`  // what it may not return, whatever strikes
	Within  int64    `json:"within,omitempty"` // how long it may take where no fault strikes
	Local   bool     `json:"local,omitempty"`  // servers play no part in it, only its process has to run
	Err     string   `json:"err,omitempty"`
}
