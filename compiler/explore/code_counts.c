/* In: assembly. Out: loops and what their turns do. See code_counts.h.
 *
 * LLVM says behind the label of each block which loop it belongs to: "=>This Inner Loop Header: Depth=2" at the header,
 * "in Loop: Header=BB0_5 Depth=2" in the others. A block without such a comment is in no loop. */
#include "explore/code_counts.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"

enum { NO_LOOP = -1 };

typedef struct Reader {
  Arena *arena;
  CodeCounts counts;
  Map headers; /* "BB0_5" -> number of the loop + 1 */
  const char *block; /* the label of the block that is read, such as "BB0_5"; "": it has none */
  int loop;
} Reader;

/* "BB0_5" of ".LBB0_5:"; "" of "# %bb.4:". */
static const char *label_of(const Reader *r, const char *line) {
  if (strncmp(line, ".L", 2) != 0) return "";
  return arena_strndup(r->arena, line + 2, strcspn(line + 2, ":"));
}

static bool begins_block(const char *line) {
  return strncmp(line, ".LBB", 4) == 0 || strncmp(line, "# %bb.", 6) == 0;
}

static void note_header(Reader *r, const char *depth, bool is_inner, uint32_t line) {
  if (map_has(&r->headers, r->block)) {
    r->loop = (int)(uintptr_t)map_get(&r->headers, r->block) - 1;
    return;
  }
  LoopCounts loop = {.line = line, .depth = (uint32_t)strtoul(depth, NULL, 10), .is_inner = is_inner};
  vec_push(r->arena, &r->counts.loops, loop);
  map_put(&r->headers, r->block, (void *)(uintptr_t)r->counts.loops.n);
  r->loop = (int)r->counts.loops.n - 1;
}

/* What a comment says of the block that it stands in. */
static void read_comment(Reader *r, const char *comment, uint32_t line) {
  const char *depth = strstr(comment, "Depth=");
  const char *in_loop = strstr(comment, "in Loop: Header=");
  if (strstr(comment, "=>") && strstr(comment, "Loop Header:") && depth) {
    note_header(r, depth + strlen("Depth="), strstr(comment, "Inner Loop Header:") != NULL, line);
  } else if (in_loop) {
    in_loop += strlen("in Loop: Header=");
    const char *header = arena_strndup(r->arena, in_loop, strcspn(in_loop, " \n"));
    r->loop = (int)(uintptr_t)map_get(&r->headers, header) - 1;
  }
}

// ---- instructions ----

static bool begins_with(const char *text, const char *begin) { return strncmp(text, begin, strlen(begin)) == 0; }

/* Products that are added: of floats, of bytes and words, of tile registers. */
static bool is_multiply_add(const char *name) {
  static const char *const names[] = {"vfmadd", "vfmsub", "vfnmadd", "vfnmsub", "vpdp", "vpmadd", "pmadd", "tdp"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (begins_with(name, names[i])) return true;
  return false;
}

static bool only_reads(const char *name) { return begins_with(name, "cmp") || begins_with(name, "test"); }

/* AT&T syntax: the last operand is written. The address of a lea is no memory. */
static void count_memory(LoopCounts *loop, const char *name, const char *operands) {
  const char *bracket = strchr(operands, '('), *close = bracket ? strchr(bracket, ')') : NULL;
  if (strstr(name, "broadcast") || strstr(operands, "{1to")) loop->broadcasts++;
  else if (!close || begins_with(name, "lea")) return;
  else if (strchr(close, ',') || only_reads(name)) loop->loads++;
  else loop->stores++;
}

/* `line`: without the tab before it. */
static void read_instruction(Reader *r, const char *line) {
  const char *comment = strchr(line, '#');
  const bool is_spill = comment && strstr(comment, "Spill"), is_reload = comment && strstr(comment, "Reload");
  r->counts.spills += is_spill;
  r->counts.reloads += is_reload;
  if (r->loop == NO_LOOP) return;
  LoopCounts *loop = &r->counts.loops.items[r->loop];
  const size_t n = strcspn(line, " \t"), length = comment ? (size_t)(comment - line) : strlen(line);
  const char *name = arena_strndup(r->arena, line, n);
  const char *operands = length > n ? arena_strndup(r->arena, line + n, length - n) : "";
  loop->spills += is_spill || is_reload;
  loop->fma += is_multiply_add(name);
  if (begins_with(name, "prefetch")) loop->prefetches++;
  else count_memory(loop, name, operands);
}

static void read_lines(Reader *r, const char *text, bool counts) {
  uint32_t number = 1;
  for (const char *at = text; *at; number++) {
    const size_t length = strcspn(at, "\n");
    const char *line = arena_strndup(r->arena, at, length), *comment = strchr(line, '#');
    if (begins_block(line)) {
      r->block = label_of(r, line);
      r->loop = NO_LOOP;
    }
    const bool is_instruction = line[0] == '\t' && line[1] != '.';
    if (is_instruction && counts) read_instruction(r, line + 1);
    else if (!is_instruction && comment) read_comment(r, comment, number);
    at += length + (at[length] == '\n');
  }
}

/* Headers first: blocks of a loop may stand before that of its header. */
CodeCounts code_counts(Arena *arena, const char *text) {
  Reader r = {.arena = arena, .headers = map_new(arena), .block = "", .loop = NO_LOOP};
  read_lines(&r, text, false);
  r.block = "";
  r.loop = NO_LOOP;
  read_lines(&r, text, true);
  return r.counts;
}
