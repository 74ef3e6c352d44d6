package chart

import "math"

// scale places values between two pixels. A logarithmic one takes only what is above zero.
type scale struct {
	from, to float64 // pixels
	low      float64
	high     float64
	log      bool
}

func (s scale) at(v float64) float64 {
	low, high := s.low, s.high
	if s.log {
		low, high, v = math.Log(low), math.Log(high), math.Log(max(v, s.low))
	}
	if high == low {
		return (s.from + s.to) / 2
	}
	return s.from + (s.to-s.from)*(v-low)/(high-low)
}

// ticks are about five round values from zero to the highest, or every power of ten.
func (s scale) ticks() []float64 {
	var all []float64
	if s.log {
		for v := math.Pow(10, math.Ceil(math.Log10(s.low)-1e-9)); v <= s.high*1.0001; v *= 10 {
			all = append(all, v)
		}
		return all
	}
	step := math.Pow(10, math.Floor(math.Log10(s.high/5)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if s.high/(step*factor) <= 6 {
			step *= factor
			break
		}
	}
	for v := 0.0; v <= s.high*1.0001; v += step {
		all = append(all, v)
	}
	return all
}

// valueScale is the vertical one: from zero, or from the power of ten below the least value.
func valueScale(values []float64, log bool) scale {
	s := scale{from: plotBottom, to: plotTop, log: log}
	low := math.Inf(1)
	for _, v := range values {
		s.high = max(s.high, v)
		if v > 0 {
			low = min(low, v)
		}
	}
	if s.high == 0 { // nothing, or nothing but zeros
		s.high, low = 1, 1
	}
	if log {
		s.low = math.Pow(10, math.Floor(math.Log10(low)))
		s.high = math.Pow(10, math.Ceil(math.Log10(s.high)))
	} else {
		s.high *= 1.05
	}
	return s
}
