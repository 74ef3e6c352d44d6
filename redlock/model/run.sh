#!/usr/bin/env bash
# Checks the models with spin and compares each outcome with what cases.txt expects.
#   run.sh                the small cases
#   run.sh --full         all cases, one at a time and each below 2.5 GB
#   run.sh NAME...        the named cases
# Exit: 0 all as expected, 1 some differ, 2 spin, gcc or a case is missing.
set -u -o pipefail -m  # -m: a process group for each case, so that an interrupt ends spin's children too
for tool in spin gcc; do
  command -v "$tool" >/dev/null || { echo "run.sh: $tool is missing: install the Debian packages spin and gcc" >&2; exit 2; }
done

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
full=no
case "${1:-}" in
  --full) full=yes; shift ;;
  -*) sed -n '2,6p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac

tmp=$(mktemp -d)
stop() { for pid in $(jobs -p); do kill -- "-$pid" 2>/dev/null; done; rm -rf "$tmp"; }
trap stop EXIT
trap 'exit 1' INT TERM

# check MODEL FLAGS SEARCH: leaves the outcome in ./outcome, the trace in ./trace
check() {
  local model=$1 flags=$2 search=$3 compile options
  case $search in
    all)      compile="-DSAFETY";                  options="-m100000" ;;  # depth first
    shortest) compile="-DSAFETY -DBFS -DNOREDUCE"; options="" ;;          # breadth first
    cycles)   compile="-DNP";                      options="-m100000 -l" ;;
  esac
  # shellcheck disable=SC2086  # flags, options and compiler are lists of words
  { cp "$here"/*.pml . &&
    spin $flags -a "$model" && $compiler -w $compile $pack -DMEMLIM=$memory -o pan pan.c && TIMEFORMAT='cpu seconds: %U' && time ./pan $options -w$slots
  } >log 2>&1 || { echo "does not run" >outcome; cp log trace; return; }

  # spin warns where the trail was written in the same second as the model
  # shellcheck disable=SC2086
  [ -f "$model.trail" ] && spin $flags -t -T "$model" 2>&1 | sed -e '/^spin: warning/d' -e '/^spin: /,$d' >trace
  if grep -q "errors: 0" log; then
    if grep -q "Search not completed" log; then echo "not completed"; else echo holds; fi
  elif grep -q "^pan:1: invalid end state" log; then echo "refuted progress"
  elif grep -q "^pan:1: non-progress cycle" log; then echo "refuted progress"
  else sed -n 's/^violates \(.*\)/refuted \1/p' trace
  fi >outcome
}

figure() { sed -n "s/$1/\\1/p" "$2" | head -1; }  # PATTERN FILE

failed=0
show() {  # INDEX
  local dir=$tmp/$1 outcome verdict=ok
  outcome=$(cat "$dir/outcome")
  [ "$outcome" = "${expect[$1]}" ] || { verdict=FAIL; failed=$((failed+1)); }
  printf '%-4s %-18s %-18s %9s states %6s s  %s\n' "$verdict" "${name[$1]}" "$outcome" \
    "$(figure '^ *\([0-9]*\) states, stored.*' "$dir/log")" "$(figure '^cpu seconds: \(.*\)' "$dir/log")" "${text[$1]}"
  [ "$verdict" = ok ] || echo "     expected: ${expect[$1]}  (${model[$1]} ${flags[$1]})"
  [ ! -f "$dir/trace" ] || sed 's/^/       | /' "$dir/trace"
}

# The small cases are compiled for longer than they run. tcc compiles without delay, and its program is as fast as -O0's.
jobs=2 memory=900 slots=21 compiler="gcc -O0" pack=""
command -v tcc >/dev/null && compiler=tcc
name=() model=() flags=() search=() expect=() text=()
while IFS='|' read -r size n m f s e t; do
  [[ $size =~ ^(small|large)$ ]] || continue
  if [ $# -gt 0 ]; then [[ " $* " == *" $n "* ]] || continue
  elif [ "$full" = no ] && [ "$size" = large ]; then continue
  fi
  [ "$size" = small ] || { jobs=1 memory=2400 slots=25 compiler="gcc -O2" pack=-DCOLLAPSE; }
  name+=("$n") model+=("$m") flags+=("$f") search+=("$s") expect+=("$e") text+=("$t")
done < <(sed -e 's/ *| */|/g' -e 's/^ *//' "$here/cases.txt")
[ $# -eq 0 ] || [ ${#name[@]} -eq $# ] || { echo "run.sh: no such case among: $*" >&2; exit 2; }

shown=0
show_finished() {
  while [ "$shown" -lt ${#name[@]} ] && [ -f "$tmp/$shown/outcome.done" ]; do show "$shown"; shown=$((shown+1)); done
}
for i in "${!name[@]}"; do
  mkdir "$tmp/$i"
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; show_finished; done
  ( cd "$tmp/$i" && check "${model[$i]}" "${flags[$i]}" "${search[$i]}"; touch outcome.done; rm -f pan pan.* ) &
done
wait
show_finished

echo "$((${#name[@]} - failed)) of ${#name[@]} cases as expected"
[ "$failed" -eq 0 ] && [ "$shown" -eq ${#name[@]} ] && [ "$shown" -gt 0 ]
