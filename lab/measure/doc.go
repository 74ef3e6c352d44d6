// Command measure compares this library with other lock libraries, and with floors: the cost of the same work on a bare
// client.
//
//	go run -C lab ./measure -w all                   # every workload, about a quarter of an hour
//	go run -C lab ./measure -w latency,throughput    # some of them; -w list names them
//	go run -C lab ./measure -w instructions          # of the server, by callgrind; needs valgrind
//	go run -C lab ./measure -svg out                  # as plots, too
//
// It starts its own redis-server processes. Within a round every peer takes its turn for the time of -for; ratios are
// taken within a round; a table shows medians over the rounds. A figure that is counted rather than timed is counted
// once.
package main
