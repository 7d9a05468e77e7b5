/* The shortest way from one list of lines to another (Myers: of all ways with d lines gone or new, the farthest on each
 * diagonal), and how it is written. See line_diff.h. */
#include "format/line_diff.h"

#include <stdbool.h>
#include <string.h>

enum {
  MOST_STEPS = 2000, /* lines gone or new that are looked for: time and memory grow with the square */
  CONTEXT = 3        /* lines that stand around a change, as `patch` expects */
};

static TextLines lines_of(Arena *arena, const StrBuf *text) {
  TextLines lines = {.text = text->text};
  uint32_t n = 1;
  for (size_t i = 0; i < text->length; i++) n += text->text[i] == '\n';
  lines.starts = ARENA_ARRAY(arena, uint32_t, n + 1);
  for (uint32_t i = 0; i < text->length; i++)
    if (text->text[i] == '\n') lines.starts[++lines.n] = i + 1;
  if (lines.starts[lines.n] < text->length) lines.starts[++lines.n] = (uint32_t)text->length;
  return lines;
}

static uint32_t length_of(const TextLines *lines, uint32_t i) { return lines->starts[i + 1] - lines->starts[i]; }

static bool same_line(const LineDiff *diff, uint32_t i, uint32_t k) {
  const uint32_t length = length_of(&diff->old, i);
  return length == length_of(&diff->new, k) &&
         memcmp(diff->old.text + diff->old.starts[i], diff->new.text + diff->new.starts[k], length) == 0;
}

/* What both have at their beginning and end is no change: the rest is [first, old_end) and [first, new_end). */
typedef struct Middle {
  uint32_t first, old_end, new_end;
} Middle;

static Middle middle_of(const LineDiff *diff) {
  Middle m = {0, diff->old.n, diff->new.n};
  while (m.first < m.old_end && m.first < m.new_end && same_line(diff, m.first, m.first)) m.first++;
  while (m.old_end > m.first && m.new_end > m.first && same_line(diff, m.old_end - 1, m.new_end - 1)) {
    m.old_end--;
    m.new_end--;
  }
  return m;
}

/* Farthest old lines by diagonal k = old - new, after each number of steps: those of step d are d + 1 numbers, for
 * -d, -d + 2 ... d. */
typedef struct Ways {
  int32_t *farthest[MOST_STEPS + 1];
  int32_t n_steps; /* of the shortest way; -1: it is longer than MOST_STEPS */
} Ways;

static int32_t reached(const Ways *ways, int32_t step, int32_t k) {
  return k < -step || k > step ? -1 : ways->farthest[step][(k + step) / 2];
}

/* Where step d + 1 begins on diagonal k: a line is new (down) or gone (right). */
static bool comes_down(const Ways *ways, int32_t step, int32_t k) {
  return k == -step - 1 || (k != step + 1 && reached(ways, step, k - 1) < reached(ways, step, k + 1));
}

static void find_ways(Arena *arena, const LineDiff *diff, Middle m, Ways *ways) {
  const int32_t n_old = (int32_t)(m.old_end - m.first), n_new = (int32_t)(m.new_end - m.first);
  for (int32_t d = 0; d <= MOST_STEPS; d++) {
    ways->farthest[d] = ARENA_ARRAY(arena, int32_t, d + 1);
    for (int32_t k = -d; k <= d; k += 2) {
      int32_t x = 0;
      if (d > 0) x = comes_down(ways, d - 1, k) ? reached(ways, d - 1, k + 1) : reached(ways, d - 1, k - 1) + 1;
      while (x < n_old && x - k < n_new && x - k >= 0 &&
             same_line(diff, m.first + (uint32_t)x, m.first + (uint32_t)(x - k)))
        x++;
      ways->farthest[d][(k + d) / 2] = x;
      if (x < n_old || x - k < n_new || x > n_old || x - k > n_new) continue;
      ways->n_steps = d;
      return;
    }
  }
  ways->n_steps = -1;
}

/* A line that is gone or new before the change that was found last, or a change of its own. The way is walked
 * backwards. */
static void add_before(Arena *arena, LineDiff *diff, uint32_t old, uint32_t new, bool is_new) {
  LineChange *last = diff->changes.n ? &diff->changes.items[diff->changes.n - 1] : NULL;
  if (!last || last->old_first != old + !is_new || last->new_first != new + is_new) {
    vec_push(arena, &diff->changes, (LineChange){old, !is_new, new, is_new});
    return;
  }
  *last = (LineChange){old, last->old_n + !is_new, new, last->new_n + is_new};
}

static void walk_back(Arena *arena, LineDiff *diff, Middle m, const Ways *ways) {
  int32_t x = (int32_t)(m.old_end - m.first), y = (int32_t)(m.new_end - m.first);
  for (int32_t d = ways->n_steps; d > 0; d--) {
    const int32_t k = x - y;
    const bool is_new = comes_down(ways, d - 1, k);
    x = reached(ways, d - 1, is_new ? k + 1 : k - 1);
    y = x - (is_new ? k + 1 : k - 1);
    add_before(arena, diff, m.first + (uint32_t)x, m.first + (uint32_t)y, is_new);
  }
  for (size_t i = 0, k = diff->changes.n; i + 1 < k--; i++) {
    const LineChange first = diff->changes.items[i];
    diff->changes.items[i] = diff->changes.items[k];
    diff->changes.items[k] = first;
  }
}

LineDiff line_diff(Arena *arena, const StrBuf *old, const StrBuf *new) {
  LineDiff diff = {.old = lines_of(arena, old), .new = lines_of(arena, new)};
  const Middle m = middle_of(&diff);
  if (m.first == m.old_end && m.first == m.new_end) return diff;
  Ways *ways = ARENA_NEW(arena, Ways);
  find_ways(arena, &diff, m, ways);
  if (ways->n_steps >= 0) {
    walk_back(arena, &diff, m, ways);
  } else {
    const LineChange whole = {m.first, m.old_end - m.first, m.first, m.new_end - m.first};
    vec_push(arena, &diff.changes, whole);
  }
  return diff;
}

// ---- as text ----

static void print_lines(StrBuf *out, char sign, const TextLines *lines, uint32_t first, uint32_t n) {
  for (uint32_t i = first; i < first + n; i++) {
    const uint32_t length = length_of(lines, i);
    strbuf_add_char(out, sign);
    strbuf_add_n(out, lines->text + lines->starts[i], length);
    if (lines->text[lines->starts[i] + length - 1] != '\n') strbuf_add(out, "\n\\ No newline at end of file\n");
  }
}

/* Of no lines the one before them is named, as diff does. */
static void print_range(StrBuf *out, char sign, uint32_t first, uint32_t n) {
  strbuf_printf(out, "%c%u,%u", sign, n ? first + 1 : first, n);
}

/* Changes [first, end) with the lines between and around them. */
static void print_hunk(StrBuf *out, const LineDiff *diff, size_t first, size_t end) {
  const LineChange *one = &diff->changes.items[first], *last = &diff->changes.items[end - 1];
  const uint32_t before = one->old_first < CONTEXT ? one->old_first : CONTEXT;
  const uint32_t old_end = last->old_first + last->old_n, left = diff->old.n - old_end;
  const uint32_t after = left < CONTEXT ? left : CONTEXT;
  uint32_t at = one->old_first - before;
  strbuf_add(out, "@@ ");
  print_range(out, '-', at, old_end + after - at);
  strbuf_add_char(out, ' ');
  print_range(out, '+', one->new_first - before, last->new_first + last->new_n + after - (one->new_first - before));
  strbuf_add(out, " @@\n");
  for (size_t i = first; i < end; i++) {
    const LineChange *change = &diff->changes.items[i];
    print_lines(out, ' ', &diff->old, at, change->old_first - at);
    print_lines(out, '-', &diff->old, change->old_first, change->old_n);
    print_lines(out, '+', &diff->new, change->new_first, change->new_n);
    at = change->old_first + change->old_n;
  }
  print_lines(out, ' ', &diff->old, at, after);
}

void line_diff_print(StrBuf *out, const char *name, const LineDiff *diff) {
  if (diff->changes.n) strbuf_printf(out, "--- %s\n+++ %s\n", name, name);
  for (size_t first = 0; first < diff->changes.n;) {
    size_t end = first + 1;
    while (end < diff->changes.n && diff->changes.items[end].old_first - diff->changes.items[end - 1].old_first -
                                            diff->changes.items[end - 1].old_n <=
                                        2 * CONTEXT)
      end++;
    print_hunk(out, diff, first, end);
    first = end;
  }
}
