# Sourced by check.sh and check-all.sh: runs stages side by side, as many as there are processors, and prints the output
# of each when it has ended, in the order in which they began.
#
# stage NAME COMMAND...: begins one as soon as a processor is free for it.
# stage_alone NAME COMMAND...: the same, when all others have ended, and waits for it: for what uses all processors, or
# measures times.
# finish_stages: waits for all.
#
# The caller sets `work`, a folder of its own for what they print, and defines ended NAME LOG CODE, which prints of the
# log what a reader wants and counts; CODE is `killed` if the stage did not come to its end.
names=() shown=0

# What runs: the stages that have begun and not ended, with the number of their tests that have passed.
running() {
  local file begun=
  for file in "$work"/*.name; do
    [ -e "$file" ] && [ ! -e "${file%.name}.ended" ] || continue
    begun+="${begun:+, }$(cat "$file") ($(grep -cE '^ok |   Passed ' "${file%.name}.log") passed)"
  done
  echo "${begun:-preparing}"
}

show_ended() {
  while [ -e "$work/$shown.ended" ]; do
    echo "== ${names[shown]}"
    ended "${names[shown]}" "$work/$shown.log" "$(cat "$work/$shown.ended")"
    shown=$((shown + 1))
  done
}

stage() {
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do
    wait -n
    show_ended
  done
  local number=${#names[@]}
  names+=("$1")
  : >"$work/$number.log"
  echo "$1" >"$work/$number.name"
  shift
  {
    "$@" >"$work/$number.log" 2>&1
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
