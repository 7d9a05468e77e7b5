/* In: args.def and what a program has. Out: the members of the args struct, in order. See args_layout.h. */
#include "aot/args_layout.h"

enum { ALL, RAGGED };

const ArgsRow args_rows[N_ARGS_GROUPS] = {
#define ARGS(group, per, which, name, text, number) {PER_##per, which == RAGGED, name, text, number},
#include "tfm/abi/args.def"
};

/* The group behind those that alternate with this one. */
static ArgsGroup end_of(ArgsGroup first) {
  ArgsGroup end = first + 1;
  while (end < N_ARGS_GROUPS && args_rows[end].per == args_rows[first].per) end++;
  return end;
}

ArgsMembers args_members(Arena *arena, const uint32_t counts[N_ARGS_PER], const bool *ragged) {
  uint32_t most = 0, n = 0;
  for (ArgsGroup group = 0; group < N_ARGS_GROUPS; group++) most += counts[args_rows[group].per];
  ArgsMember *items = ARENA_ARRAY(arena, ArgsMember, most);
  for (ArgsGroup first = 0, end; first < N_ARGS_GROUPS; first = end) {
    end = end_of(first);
    for (uint32_t i = 0; i < counts[args_rows[first].per]; i++)
      for (ArgsGroup group = first; group < end; group++)
        if (!args_rows[group].only_ragged || (ragged && ragged[i])) items[n++] = (ArgsMember){group, i};
  }
  return (ArgsMembers){items, n};
}
