/* Args: the order of the members of a library's args struct, from args.def.
 *
 * In: how many symbols, inputs and outputs a program has. Out, in the arena: its members, which have 8 bytes each,
 * behind the 8 of struct_size. The objective of training has no run, no outputs and no ragged sizes. Refuses nothing.
 * */
#ifndef TFM_AOT_ARGS_LAYOUT_H
#define TFM_AOT_ARGS_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

typedef enum ArgsGroup {
#define ARGS(group, per, which, name, text, number) ARGS_##group,
#include "tfm/abi/args.def"
  N_ARGS_GROUPS
} ArgsGroup;

typedef enum ArgsPer { PER_RUN, PER_SYMBOL, PER_INPUT, PER_OUTPUT, N_ARGS_PER } ArgsPer;

typedef struct ArgsRow {
  ArgsPer per;
  bool only_ragged;
  const char *name, *text, *number;
} ArgsRow;

typedef struct ArgsMember {
  ArgsGroup group;
  uint32_t index; /* of the symbol, input or output */
} ArgsMember;

typedef struct ArgsMembers {
  const ArgsMember *items;
  uint32_t n;
} ArgsMembers;

extern const ArgsRow args_rows[N_ARGS_GROUPS];

/* `counts` says how many there are of each kind, `ragged` which symbols are; NULL: none is. */
ArgsMembers args_members(Arena *arena, const uint32_t counts[N_ARGS_PER], const bool *ragged);
/* Of member number i, or, with the number of all, the size of the struct. */
static inline uint32_t args_offset(uint32_t i) { return 8 + 8 * i; }

#endif
