# Sourced by check.sh and check-all.sh: runs stages side by side, one more than there are processors, since some wait for
# servers and pages, and prints the output of each when it has ended, in the order in which they began, with how many
# seconds it took, and how many of a processor.
#
# stage NAME COMMAND...: begins one as soon as there is room for it.
# stage_alone NAME COMMAND...: the same, when all others have ended, and waits for it: for what uses all processors, or
# measures times.
# finish_stages: waits for all.
#
# The caller sets `work`, a folder of its own for what they print, and defines ended NAME LOG CODE, which prints of the
# log what a reader wants and counts; CODE is `killed` if the stage did not come to its end.
names=() shown=0

# The number of calls of stage in the script, those in a loop counted once.
stages_planned=$(grep -cE '^ *stage(_alone)? "' "scripts/$(basename "$0")" 2>/dev/null)

# "84 of 110" of what ctest prints, else how many tests of a log have passed.
tests_so_far() {
  local of_ctest
  of_ctest=$(grep -oE '^ *[0-9]+/[0-9]+ Test' "$1" | tail -n 1 | grep -oE '[0-9]+/[0-9]+')
  if [ -n "$of_ctest" ]; then echo "${of_ctest%/*} of ${of_ctest#*/} done"
  else echo "$(grep -cE '^ok |   Passed ' "$1") passed"; fi
}

# How many stages have ended, of about how many, and what runs, with how far it is.
running() {
  local file begun= ended=0
  for file in "$work"/*.name; do
    [ -e "$file" ] || continue
    if [ -e "${file%.name}.ended" ]; then ended=$((ended + 1)); continue; fi
    begun+="${begun:+, }$(cat "$file") ($(tests_so_far "${file%.name}.log"))"
  done
  echo "$ended of about ${stages_planned:-?} stages; ${begun:-preparing}"
}

jobs_at_once=$(($(nproc) + 1))

# " (12 s, 15 of a processor)" of the file in which a stage left how long it ran; nothing of one that was killed.
seconds_of() { [ ! -e "$1" ] || awk '{ printf " (%.0f s, %.0f of a processor)", $1, $2 + $3 }' "$1"; }

show_ended() {
  while [ -e "$work/$shown.ended" ]; do
    echo "== ${names[shown]}$(seconds_of "$work/$shown.seconds")"
    ended "${names[shown]}" "$work/$shown.log" "$(cat "$work/$shown.ended")"
    shown=$((shown + 1))
  done
}

stage() {
  while [ "$(jobs -rp | wc -l)" -ge "$jobs_at_once" ]; do
    wait -n
    show_ended
  done
  local number=${#names[@]}
  names+=("$1")
  : >"$work/$number.log"
  echo "$1" >"$work/$number.name"
  shift
  {
    TIMEFORMAT='%R %U %S'
    { time "$@" >"$work/$number.log" 2>&1; } 2>"$work/$number.seconds"
    echo $? >"$work/$number.code"
    mv "$work/$number.code" "$work/$number.ended" # whole, or not there
  } &
}

finish_stages() {
  wait
  local number
  for ((number = shown; number < ${#names[@]}; number++)); do
    [ -e "$work/$number.ended" ] || echo killed >"$work/$number.ended"
  done
  show_ended
}

stage_alone() {
  finish_stages
  stage "$@"
  finish_stages
}
