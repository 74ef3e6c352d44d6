package lockdebug

import (
	"bytes"
	"html/template"
)

// Render returns the page with this text in every value that comes from outside.
func Render(value string) (html []byte, err error) {
	s := snapshot{
		request: request{Search: value, Prefix: value, Sort: value}, Process: value, Errors: []string{value},
		LocksTotal: 2, LeasesTotal: 2, WaitersTotal: 3,
		Locks: []lockView{{
			Name: value, Holders: 1, Waiting: 2,
			Leases: []leaseRow{{
				Name: value, Mode: value, Owner: value, Hold: "1" + value, Meta: value, Error: value, RenewalLate: true,
				Broken: true, BrokenBy: "1" + value, BrokenWhy: value,
			}},
			Waiters: []waiterRow{{
				Name: value, Mode: value, Owner: value, Hold: "1" + value, Meta: value,
				Behind: &behindRow{Owner: value, Hold: value, Meta: value, Mode: value},
			}},
		}},
		Losses: []lossRow{{
			Name: value, Mode: value, Owner: value, Hold: "1" + value, Meta: value, Reason: value, Error: value,
		}},
		StatRows: []statRow{{value, 1}}, Breaks: true,
	}
	var body bytes.Buffer
	err = page.Execute(&body, &pageData{snapshot: s, Style: template.CSS(style), Script: template.JS(script)})
	return body.Bytes(), err
}

// Duration is what the page shows for a number of milliseconds.
func Duration(ms int64) string { return shownDuration(ms) }
