/* The args struct of a compiled library, as the rows of tfm/abi/args.def make it: order and offsets of its members, their
 * names, the lines of the header, and the number that tells one struct from another. */
#include <criterion/criterion.h>
#include <string.h>

#include "aot/args_struct.h"
#include "base/arena.h"

static const uint32_t counts[N_ARGS_PER] = {[PER_RUN] = 1, [PER_SYMBOL] = 2, [PER_INPUT] = 1, [PER_OUTPUT] = 2};

static void expect_members(ArgsMembers members, const ArgsMember *expected, uint32_t n) {
  cr_assert_eq(members.n, n);
  for (uint32_t i = 0; i < n; i++) {
    cr_expect_eq(members.items[i].group, expected[i].group, "member %u", i);
    cr_expect_eq(members.items[i].index, expected[i].index, "member %u", i);
  }
}

Test(args_struct, outputs_alternate_with_their_capacities_and_lengths_come_last) {
  Arena *arena = arena_create();
  const ArgsMember expected[] = {{ARGS_symbols, 0}, {ARGS_symbols, 1},    {ARGS_inputs, 0},  {ARGS_outputs, 0},
                                 {ARGS_capacities, 0}, {ARGS_outputs, 1}, {ARGS_capacities, 1}, {ARGS_lengths, 1}};
  expect_members(args_members(arena, counts, (const bool[]){false, true}), expected, 8);
  expect_members(args_members(arena, counts, NULL), expected, 7);
  cr_expect_eq(args_offset(0), 8, "struct_size stands before all");
  cr_expect_eq(args_offset(7), 64);
  arena_destroy(arena);
}

Test(args_struct, an_objective_has_sizes_and_inputs_alone) {
  Arena *arena = arena_create();
  const uint32_t objective[N_ARGS_PER] = {[PER_SYMBOL] = 1, [PER_INPUT] = 2};
  const ArgsMember expected[] = {{ARGS_symbols, 0}, {ARGS_inputs, 0}, {ARGS_inputs, 1}};
  expect_members(args_members(arena, objective, NULL), expected, 3);
  arena_destroy(arena);
}

static const tfm_tensor_info inputs[] = {{.name = "x", .shape = "f32[n, time]", .dtype = TFM_F32}};
static const tfm_tensor_info outputs[] = {{.name = "y", .shape = "f32[n]", .dtype = TFM_F32},
                                          {.name = "y_capacity", .shape = "i32[n]", .dtype = TFM_I32}};
static const tfm_program program = {.name = "Small", .n_symbols = 2, .symbols = (const char *const[]){"n", "struct_size"},
                                    .n_inputs = 1, .inputs = inputs, .n_outputs = 2, .outputs = outputs};

Test(args_struct, names_are_distinct_and_those_of_the_model_come_first) {
  Arena *arena = arena_create();
  const ArgsNames names = args_names(arena, &program, (const bool[]){true, false});
  cr_expect_str_eq(names.prefix, "small");
  cr_expect_str_eq(names.of[ARGS_symbols][1], "struct_size_");
  cr_expect_str_eq(names.of[ARGS_outputs][1], "y_capacity");
  cr_expect_str_eq(names.of[ARGS_capacities][0], "y_capacity_");
  cr_expect_str_eq(names.of[ARGS_capacities][1], "y_capacity_capacity");
  cr_expect_str_eq(names.of[ARGS_lengths][0], "n_lengths");
  cr_expect_null(names.of[ARGS_lengths][1]);
  arena_destroy(arena);
}

Test(args_struct, the_header_has_a_line_for_each_member) {
  Arena *arena = arena_create();
  const ArgsNames names = args_names(arena, &program, (const bool[]){false, true});
  StrBuf out = strbuf_new(arena);
  args_print(&out, &program, &names, "args", 0);
  cr_expect_str_eq(out.text,
                   "typedef struct small_args {\n"
                   "  size_t struct_size; /* sizeof(small_args), or 0 */\n"
                   "  int64_t n;\n"
                   "  int64_t struct_size_;\n"
                   "  const float *x; /* f32[n, time] */\n"
                   "  float *y; /* f32[n]; NULL: not wanted */\n"
                   "  int64_t y_capacity_; /* elements that y has room for; 0: enough, on the caller's word */\n"
                   "  int32_t *y_capacity; /* i32[n]; NULL: not wanted */\n"
                   "  int64_t y_capacity_capacity; /* elements that y_capacity has room for; 0: enough, on the caller's "
                   "word */\n"
                   "  const int64_t *struct_size__lengths; /* [n], at most struct_size_ each; NULL: that of all */\n"
                   "} small_args;\n\n");
  arena_destroy(arena);
}

Test(args_struct, another_struct_has_another_number) {
  Arena *arena = arena_create();
  const ArgsNames names = args_names(arena, &program, NULL), ragged = args_names(arena, &program, (const bool[]){true, false});
  const uint64_t number = args_number(arena, &program, &names);
  cr_expect_eq(number, args_number(arena, &program, &names));
  cr_expect_neq(number, args_number(arena, &program, &ragged));
  tfm_program other = program;
  const tfm_tensor_info wider[] = {{.name = "x", .shape = "f32[n, 2*time]", .dtype = TFM_F32}};
  other.inputs = wider;
  const ArgsNames of_other = args_names(arena, &other, NULL);
  cr_expect_neq(number, args_number(arena, &other, &of_other));
  arena_destroy(arena);
}
