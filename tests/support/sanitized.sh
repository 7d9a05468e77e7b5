#!/bin/sh
# usage: sanitized.sh PROGRAM ARGUMENT...
# Runs a test whose framework hides what sanitizers find at its end: reports go to files, and a file is a failure (99).
folder=$(mktemp -d) || exit 98
ASAN_OPTIONS="log_path=$folder/report:allocator_may_return_null=1:${ASAN_OPTIONS}" \
  UBSAN_OPTIONS="log_path=$folder/report:print_stacktrace=1:${UBSAN_OPTIONS}" "$@"
result=$?
# An allocation that is refused, as tests of large sizes want it, leaves a warning but is no fault.
if ls "$folder"/report.* >/dev/null 2>&1 && grep -hv 'WARNING: AddressSanitizer failed to allocate' "$folder"/report.* | grep -q .; then
  cat "$folder"/report.* >&2
  result=99
fi
rm -rf "$folder"
exit $result
