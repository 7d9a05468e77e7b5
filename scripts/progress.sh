# Sourced by check.sh and check-all.sh.
# progress_begin COMMAND: prints every eight seconds how long the script has run, and what COMMAND says of what it does.
# progress_end: ends that. The caller must call it before it exits, or whoever reads its output waits for eight seconds.

# The sleep has its own output: it outlives the loop when that is killed.
progress_loop() {
  while sleep 8 >/dev/null 2>&1; do printf '...%4d s: %s\n' "$SECONDS" "$("$1")"; done
}

progress_begin() {
  progress_loop "$1" &
  progress_pid=$!
  disown "$progress_pid" # it is no stage: nobody waits for it
}

progress_end() {
  [ -z "${progress_pid:-}" ] || kill "$progress_pid" 2>/dev/null
  progress_pid=
}
