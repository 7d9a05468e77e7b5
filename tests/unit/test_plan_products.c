/* Plans of products: what is rounded where, what is read where it lies, what is no product at all. */
#include "../support/compiled_graph.h"

TestSuite(plan_products, .init = setup, .fini = teardown);

static const tfm_program *plan_on(Graph *graph, const char *target) { return &planned(graph, target)->program; }
static const tfm_program *plan(const char *text) { return plan_on(read_graph(text), "x86-64-v4"); }
static const KernelSpec *spec(const tfm_program *program, uint32_t kernel) {
  return &plan_of_program(program)->kernels.items[kernel].spec;
}
static Graph *fused(const char *text) { return optimized(elaborated(text), 2); }

#define OF_ROWS(steps) \
  "graph G(sizes t) {\n  %0 = input \"x\" : f32[t, 16]\n  %1 = weight \"w\" : f32[16, 16]\n" steps "}\n"

// ---- gemms ----

/* Rows of whole numbers are made by whoever made the rows, without waiting for others; columns may be cut otherwise. */
Test(plan_products, rounding_of_rows_is_joined_to_the_step_that_makes_them) {
  const tfm_program *p = plan(OF_ROWS(
      "  %2 = norm %0, reduction=layer_norm, eps=1e-05, { $0 } : f32[t, 16]\n"
      "  %3 = linear %2, %1, form=int8, { exp(acc) } : f32[t, 16]\n"
      "  %4 = pointwise %3, { add($0, $0) } : f32[t, 16]\n"
      "  %5 = linear %4, %1, form=int8 : f32[t, 16]\n"
      "  output y = %5\n"));
  static const uint8_t kinds[] = {TFM_STEP_ROW, TFM_STEP_QUANTIZE, TFM_STEP_GEMM,
                                  TFM_STEP_ROW, TFM_STEP_QUANTIZE, TFM_STEP_GEMM};
  cr_assert_eq(p->n_steps, 6);
  for (uint32_t i = 0; i < 6; i++) {
    cr_assert_eq(p->steps[i].kind, kinds[i]);
    cr_assert_eq(p->steps[i].joined, i == 1);
  }
}

/* A thread that is done with its rows begins the joined step while another still reads its own. */
Test(plan_products, rounding_of_rows_leaves_alone_what_the_step_before_it_reads) {
  const tfm_program *p = plan(OF_ROWS(
      "  %2 = linear %0, %1 : f32[t, 16]\n"
      "  %3 = norm %2, reduction=layer_norm, eps=1e-05, { $0 } : f32[t, 16]\n"
      "  %4 = linear %3, %1, form=int8 : f32[t, 16]\n"
      "  output y = %4\n"));
  cr_assert_eq(p->n_steps, 4);
  cr_assert(p->steps[1].kind == TFM_STEP_ROW && p->steps[2].joined);
  const tfm_operand *read = &p->operands[p->rows[p->steps[1].index].first_operand + 1];
  cr_assert_eq(read->space, TFM_SPACE_BUFFER);
  cr_assert_eq(p->buffers[read->index].last_step, 2);
}

/* With AVX2 a tile of one row of f32, INT8 or BF16, and of two of f32, has all columns of a panel, so that memory is
 * read from one end to the other. */
Test(plan_products, few_rows_take_whole_panels_with_avx2) {
  static const char *const sets[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
  static const char *const graphs[] = {OF_ROWS("  %2 = linear %0, %1 : f32[t, 16]\n  output y = %2\n"),
                                       OF_ROWS("  %2 = linear %0, %1, form=int8 : f32[t, 16]\n  output y = %2\n"),
                                       OF_ROWS("  %2 = round_to %1, form=bf16 : f32[16, 16]\n"
                                               "  %3 = linear %0, %2 : f32[t, 16]\n  output y = %3\n")};
  for (int n = 0; n < 9; n++) {
    const int i = n % 3;
    const tfm_program *p = plan_on(read_graph(graphs[n / 3]), sets[i]);
    const tfm_gemm_step *step = &p->gemms[0];
    const uint32_t whole = i != 1 ? 0 : n / 3 == 0 ? 2 : 1;
    cr_assert_eq(step->tiles[0], whole, "%s", sets[i]);
    for (uint32_t rows = 1; rows <= 3; rows++)
      cr_assert_eq(spec(p, step->tiles[rows])->width, rows <= whole ? step->panel : step->width, "%s", sets[i]);
  }
}

static const tfm_gemm_step *linear_to(int n, const char *form, const char *set) {
  const char *text = arena_printf(arena,
                                  "graph G(sizes t) {\n  %%0 = input \"x\" : f32[t, 16]\n"
                                  "  %%1 = weight \"w\" : f32[%d, 16]\n"
                                  "  %%2 = linear %%0, %%1%s : f32[t, %d]\n  output y = %%2\n}\n",
                                  n, form, n);
  return &plan_on(read_graph(text), set)->gemms[0];
}

/* One row reads two panels side by side, where there are two and, but in f32, 12 sums. */
Test(plan_products, one_row_takes_two_panels_with_avx2) {
  static const struct {
    int n;
    const char *form, *set;
    int panel; /* 0: no two are taken together */
  } cases[] = {{96, "", "x86-64-v3", 48},
               {128, "", "x86-64-v3", 64},
               {48, "", "x86-64-v3", 0},
               {96, "", "x86-64-v4", 0},
               {96, "", "x86-64", 0},
               {96, ", form=int8", "x86-64-v3", 48},
               {128, ", form=int8", "x86-64-v3", 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const tfm_gemm_step *step = linear_to(cases[i].n, cases[i].form, cases[i].set);
    cr_expect_eq(step->two_panels != TFM_NONE, cases[i].panel > 0, "%zu", i);
    if (cases[i].panel) cr_expect_eq(step->panel, cases[i].panel, "%zu", i);
  }
}

/* The sums of two rows of 64 columns would not stay in 16 registers. */
Test(plan_products, one_row_takes_whole_panels_of_64_columns_with_avx2) {
  const tfm_gemm_step *step = linear_to(64, "", "x86-64-v3");
  cr_assert(step->panel == 64 && step->tiles[0] == 1);
}

/* A tile has code for a part of its columns only if some product has a part of them. */
Test(plan_products, tiles_that_no_product_cuts) {
  static const struct {
    const char *weights, *products;
    bool is_whole;
  } cases[] = {{"f32[96, 16]", "  %2 = linear %0, %1 : f32[t, 96]\n  output y = %2\n", true},
               {"f32[95, 16]", "  %2 = linear %0, %1 : f32[t, 95]\n  output y = %2\n", false},
               {"f32[96, 16]",
                "  %2 = linear %0, %1 : f32[t, 96]\n  %3 = weight \"v\" : f32[95, 16]\n"
                "  %4 = linear %0, %3 : f32[t, 95]\n  output y = %2\n  output z = %4\n",
                false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *text =
        arena_printf(arena, "graph G(sizes t) {\n  %%0 = input \"x\" : f32[t, 16]\n  %%1 = weight \"w\" : %s\n%s}\n",
                     cases[i].weights, cases[i].products);
    const tfm_program *p = plan_on(read_graph(text), "x86-64-v3");
    for (uint32_t rows = 1; rows <= p->gemms[0].tile_rows; rows++)
      cr_assert_eq(spec(p, p->gemms[0].tiles[rows])->has_all_columns, cases[i].is_whole, "%zu", i);
  }
}

// ---- chains of rows ----

typedef struct Chain {
  uint32_t first_step, n_steps;
} Chain;

/* All chains of the program; wanted ends with an empty one. */
static void check_chains(const tfm_program *p, const Chain *wanted) {
  uint32_t n = 0;
  for (; wanted[n].n_steps; n++) {
    cr_assert_lt(n, p->n_row_chains);
    const tfm_row_chain *chain = &p->row_chains[n];
    cr_expect_eq(chain->first_step, wanted[n].first_step);
    cr_expect_eq(chain->n_steps, wanted[n].n_steps);
    cr_expect_eq(p->steps[chain->gemm].kind, TFM_STEP_GEMM);
  }
  cr_assert_eq(p->n_row_chains, n);
}

/* Rounding, products and norms of the same rows; a sum over other rows ends the chain, and what reads its result begins
 * another one. */
Test(plan_products, steps_of_the_same_rows_are_a_chain) {
  const tfm_program *p = plan(OF_ROWS(
      "  %2 = linear %0, %1, form=int8 : f32[t, 16]\n"
      "  %3 = norm %2, reduction=layer_norm, eps=1e-05, { $0 } : f32[t, 16]\n"
      "  %4 = linear %3, %1, %2, form=int8, { add(acc, $2) } : f32[t, 16]\n"
      "  %5 = reduce %4, reduction=sum, axis=0, keepdim=true, domain=[t, 16], { $0 } : f32[1, 16]\n"
      "  %6 = pointwise %4, %5, { add($0, $1) } : f32[t, 16]\n"
      "  %7 = linear %6, %1, form=int8 : f32[t, 16]\n"
      "  output y = %7\n"));
  cr_assert_eq(p->n_steps, 9);
  check_chains(p, (const Chain[]){{0, 5}, {6, 3}, {0}});
}

/* Whoever is first in the chain would write the row that the others still read. */
Test(plan_products, a_row_that_all_rows_read_is_not_written_in_their_chain) {
  const tfm_program *p = plan(OF_ROWS(
      "  %2 = linear %0, %1, form=int8 : f32[t, 16]\n"
      "  %3 = slice %2, starts=[0, 0] : f32[1, 16]\n"
      "  %4 = pointwise %2, %3, { add($0, $1) } : f32[t, 16]\n"
      "  %5 = linear %4, %1, form=int8 : f32[t, 16]\n"
      "  output y = %5\n"));
  check_chains(p, (const Chain[]){{0, 2}, {2, 3}, {0}});
}

/* Steps that leave other rows out are not of the same rows, whatever the numbers of both. */
Test(plan_products, steps_that_leave_other_rows_out_are_no_chain) {
  const tfm_program *p = plan(OF_ROWS(
      "  %2 = input \"mask\" : bool[t]\n"
      "  %3 = linear %0, %1, %2, form=int8, rows=$2 : f32[t, 16]\n"
      "  %4 = norm %3, reduction=layer_norm, eps=1e-05, { $0 } : f32[t, 16]\n"
      "  %5 = linear %4, %1, form=int8 : f32[t, 16]\n"
      "  output y = %5\n"));
  cr_assert_eq(p->n_steps, 5);
  check_chains(p, (const Chain[]){{0, 2}, {2, 3}, {0}});
}

Test(plan_products, products_in_f32_are_no_chain) {
  const tfm_program *p = plan(OF_ROWS(
      "  %2 = linear %0, %1 : f32[t, 16]\n"
      "  %3 = norm %2, reduction=layer_norm, eps=1e-05, { $0 } : f32[t, 16]\n"
      "  %4 = linear %3, %1 : f32[t, 16]\n"
      "  output y = %4\n"));
  check_chains(p, (const Chain[]){{0}});
}

// ---- direct products ----

/* Small and narrow products are read where they lie; the tiles are left out where the sizes say so. */
Test(plan_products, small_and_narrow_products_are_direct) {
  const tfm_program *p = plan(
      "graph G(sizes b, t, m, n) {\n"
      "  %0 = input \"x\" : f32[b, 3, 3]\n"
      "  %1 = input \"y\" : f32[m, n]\n"
      "  %2 = input \"z\" : f32[n, t]\n"
      "  %3 = input \"u\" : f32[n, 2]\n"
      "  %4 = input \"v\" : f32[n, 1]\n"
      "  %5 = input \"w\" : f32[n, 17]\n"
      "  %6 = matmul %0, %0 : f32[b, 3, 3]\n"
      "  %7 = matmul %1, %2 : f32[m, t]\n"
      "  %8 = matmul %1, %3 : f32[m, 2]\n"
      "  %9 = matmul %1, %4 : f32[m, 1]\n"
      "  %10 = matmul %1, %5 : f32[m, 17]\n"
      "  %11 = input \"r\" : f32[1, n]\n"
      "  %12 = matmul %11, %2 : f32[1, t]\n"
      "  output c0 = %6\n"
      "  output c1 = %7\n"
      "  output c2 = %8\n"
      "  output c3 = %9\n"
      "  output c4 = %10\n"
      "  output c5 = %12\n"
      "}\n");
  static const uint8_t direct[] = {TFM_DIRECT_COLUMNS, TFM_DIRECT_COLUMNS, TFM_DIRECT_ROWS, TFM_DIRECT_TURNED,
                                   TFM_DIRECT_NONE, TFM_DIRECT_LINES};
  static const bool tiles[] = {false, true, false, false, true, false};
  for (int i = 0; i < 6; i++) {
    cr_assert_eq(p->matmuls[i].direct, direct[i], "%d: %d", i, p->matmuls[i].direct);
    cr_assert_eq(p->matmuls[i].tiles[1] != TFM_NONE, tiles[i], "%d", i);
  }
  cr_assert_eq(spec(p, p->matmuls[0].direct_kernel)->rows, 3);
  cr_assert_eq(spec(p, p->matmuls[2].direct_kernel)->width, 2);
}

/* Strips of a known number of rows have two heights at most; of others, any. */
Test(plan_products, known_rows_need_few_tiles) {
  const tfm_program *p = plan(
      "graph G(sizes t) {\n"
      "  %0 = input \"x\" : f32[t, 61]\n"
      "  %1 = input \"y\" : f32[t, 96]\n"
      "  %2 = input \"z\" : f32[96, 80]\n"
      "  %3 = permute %0, axes=[1, 0] : f32[61, t]\n"
      "  %4 = matmul %3, %1 : f32[61, 96]\n"
      "  %5 = matmul %1, %2 : f32[t, 80]\n"
      "  output c0 = %4\n"
      "  output c1 = %5\n"
      "}\n");
  const tfm_matmul_step *known = &p->matmuls[0], *other = &p->matmuls[1];
  const int height = other->tile_rows, strips = (61 + height - 1) / height;
  for (int rows = 1; rows <= TFM_MAX_TILE_ROWS; rows++) {
    cr_expect_eq(known->tiles[rows] != TFM_NONE, rows == 61 / strips || rows == 61 / strips + 1, "%d", rows);
    cr_expect_eq(other->tiles[rows] != TFM_NONE, rows <= height, "%d", rows);
  }
}

/* Beside a transposed factor the other one is not packed, if it is a few whole panels. */
Test(plan_products, panels_stay_beside_lines_of_columns) {
  const tfm_program *p = plan(
      "graph G(sizes t) {\n"
      "  %0 = input \"x\" : f32[t, 96]\n"
      "  %1 = input \"y\" : f32[t, 128]\n"
      "  %2 = input \"z\" : f32[t, 120]\n"
      "  %3 = input \"u\" : f32[t, 576]\n"
      "  %4 = input \"v\" : f32[96, t]\n"
      "  %5 = permute %0, axes=[1, 0] : f32[96, t]\n"
      "  %6 = matmul %5, %1 : f32[96, 128]\n"
      "  %7 = matmul %5, %2 : f32[96, 120]\n"
      "  %8 = matmul %5, %3 : f32[96, 576]\n"
      "  %9 = matmul %4, %1 : f32[96, 128]\n"
      "  output c0 = %6\n"
      "  output c1 = %7\n"
      "  output c2 = %8\n"
      "  output c3 = %9\n"
      "}\n");
  for (int i = 0; i < 4; i++) {
    cr_assert_eq(p->matmuls[i].y_stays, i == 0, "%d", i);
    cr_assert_eq(p->matmuls[i].pack == TFM_NONE, i == 0, "%d", i);
  }
}

/* Taps of a convolution's weights that a run is given, every fourth number of them, are brought together once and not in
 * each row; a single row reads them where they lie. */
Test(plan_products, columns_that_lie_apart_are_brought_together_for_many_rows) {
  for (int rows = 0; rows < 2; rows++) {
    StrBuf text = strbuf_new(arena);
    const char *n = rows ? "t" : "1";
    strbuf_printf(&text,
                  "graph G(sizes t) {\n"
                  "  %%0 = input \"x\" : f32[%s, 96]\n"
                  "  %%1 = input \"w\" : f32[96, 4]\n"
                  "  %%2 = slice %%1, starts=[0, 1] : f32[96, 1]\n"
                  "  %%3 = reshape %%2 : f32[96]\n"
                  "  %%4 = pointwise %%0, %%3, { mul($0, $1) } : f32[%s, 96]\n"
                  "  output y = %%4\n"
                  "}\n", n, n);
    const tfm_program *p = plan(text.text);
    cr_assert_eq(p->n_steps, 1u + (unsigned)rows);
    const tfm_operand *tap = &p->operands[p->rows[p->steps[rows].index].first_operand + 2];
    cr_assert_eq(tap->space, rows ? TFM_SPACE_BUFFER : TFM_SPACE_INPUT);
  }
}

/* Heads are put side by side where they are made, if a product reads them turned: rows of 128 floats without a line
 * between them would fall into few sets of the cache. */
Test(plan_products, heads_that_a_turned_product_reads_are_not_copied) {
  const tfm_program *p = plan(
      "graph G(sizes b, t) {\n"
      "  %0 = input \"x\" : f32[b, 4, t, 32]\n"
      "  %1 = input \"y\" : f32[b*t, 64]\n"
      "  %2 = pointwise %0, { exp($0) } : f32[b, 4, t, 32]\n"
      "  %3 = permute %2, axes=[0, 2, 1, 3] : f32[b, t, 4, 32]\n"
      "  %4 = reshape %3 : f32[b*t, 128]\n"
      "  %5 = permute %4, axes=[1, 0] : f32[128, b*t]\n"
      "  %6 = matmul %5, %1 : f32[128, 64]\n"
      "  output c = %6\n"
      "}\n");
  cr_assert_eq(p->n_steps, 2);
  cr_assert(p->steps[0].kind == TFM_STEP_ROW && p->steps[1].kind == TFM_STEP_MATMUL);
  cr_assert_eq(spec(p, p->matmuls[0].tiles[p->matmuls[0].tile_rows])->a_step, 144);
}

/* Static weights of few columns are no panels, where the rows that are multiplied with them lie along k, are not few,
 * and are all wanted. */
Test(plan_products, static_weights_of_few_columns_are_read_where_they_lie) {
  const tfm_program *p = plan("graph G(sizes t) {\n"
                              "  %0 = input \"x\" : f32[t, 32]\n"
                              "  %1 = input \"y\" : f32[32, t]\n"
                              "  %2 = input \"z\" : f32[3, 32]\n"
                              "  %3 = weight \"two\" : f32[2, 32]\n"
                              "  %4 = weight \"four\" : f32[4, 32]\n"
                              "  %5 = weight \"five\" : f32[5, 32]\n"
                              "  %6 = permute %1, axes=[1, 0] : f32[t, 32]\n"
                              "  %7 = linear %0, %3 : f32[t, 2]\n"
                              "  %8 = linear %0, %4 : f32[t, 4]\n"
                              "  %9 = linear %0, %5 : f32[t, 5]\n"
                              "  %10 = linear %6, %4 : f32[t, 4]\n"
                              "  %11 = linear %2, %4 : f32[3, 4]\n"
                              "  output c0 = %7\n"
                              "  output c1 = %8\n"
                              "  output c2 = %9\n"
                              "  output c3 = %10\n"
                              "  output c4 = %11\n"
                              "}\n");
  uint32_t gemms = 0, matmuls = 0;
  for (uint32_t i = 0; i < p->n_steps; i++) {
    gemms += p->steps[i].kind == TFM_STEP_GEMM;
    matmuls += p->steps[i].kind == TFM_STEP_MATMUL;
  }
  cr_assert(gemms == 3 && matmuls == 2, "%u %u", gemms, matmuls);
  for (uint32_t i = 0; i < 2; i++) {
    cr_expect_eq(p->matmuls[i].direct, TFM_DIRECT_ROWS);
    cr_expect_eq(spec(p, p->matmuls[i].direct_kernel)->width, i ? 4 : 2);
  }
}

// ---- running sums ----

static const tfm_program *product_with_mask(const char *mask) {
  StrBuf text = strbuf_new(arena);
  strbuf_printf(&text,
                "model M() { forward(x: f32[b, t, 8]) {\n"
                "  p = positions(x, 1)\n"
                "  return y = f32(%s) @ x } }\n",
                mask);
  return plan_on(fused(text.text), "x86-64-v4");
}

/* Nothing is made of the mask then. */
Test(plan_products, a_product_with_a_triangle_of_ones_is_running_sums) {
  static const char *const sums[] = {"p[none, :] <= p[:, none]", "p[:, none] >= p[none, :]", "not (p[none, :] > p[:, none])"};
  static const char *const others[] = {"p[none, :] < p[:, none]", "p[none, :] >= p[:, none]", "p[none, :] <= p[none, :]"};
  for (int i = 0; i < 3; i++) {
    const tfm_program *p = product_with_mask(sums[i]);
    cr_assert_eq(p->n_steps, 1, "%s: %u steps", sums[i], p->n_steps);
    cr_assert_eq(p->steps[0].kind, TFM_STEP_ALONG);
    cr_expect_eq(p->alongs[0].what, TFM_ALONG_TRIANGLE);
    cr_expect_eq(p->n_buffers, 0);
  }
  for (int i = 0; i < 3; i++) {
    const tfm_program *p = product_with_mask(others[i]);
    cr_expect_eq(p->steps[p->n_steps - 1].kind, TFM_STEP_MATMUL, "%s", others[i]);
  }
}

// ---- gradients ----

/* The gradient of a table that is an output layer's weight too: rows are added where the product has left its own. */
Test(plan_products, rows_are_added_in_the_memory_of_the_sums) {
  const tfm_program *p = plan("graph G(sizes t) {\n"
                              "  %0 = input \"ids\" : i32[t]\n"
                              "  %1 = input \"g\" : f32[t, 100]\n"
                              "  %2 = input \"x\" : f32[t, 64]\n"
                              "  %3 = permute %1, axes=[1, 0] : f32[100, t]\n"
                              "  %4 = matmul %3, %2 : f32[100, 64]\n"
                              "  %5 = scatter %2, %0, %4 : f32[100, 64]\n"
                              "  %6 = scatter %2, %0 : f32[50, 64]\n"
                              "  output y = %5\n"
                              "  output z = %6\n"
                              "}\n");
  cr_assert_eq(p->n_steps, 3);
  cr_expect_eq(p->alongs[0].what, TFM_ALONG_SCATTER);
  cr_expect_eq(p->alongs[0].accumulate, TFM_ACCUMULATE_ONTO);
  cr_expect_eq(p->alongs[1].accumulate, TFM_ACCUMULATE_ANEW);
  cr_expect_eq(p->matmuls[0].c.space, TFM_SPACE_OUTPUT);
  cr_expect_eq(p->alongs[0].c.space, TFM_SPACE_OUTPUT);
  cr_expect_eq(p->alongs[0].c.index, p->matmuls[0].c.index);
  cr_expect_eq(p->n_id_limits, 2); /* ids are an input: they are checked before the run, for each table */
}

/* Runs of further parts of a step add to what is there, if all steps that write the output can. */
Test(plan_products, gradients_go_on_where_products_and_scatters_write_them) {
  const tfm_program *p = plan("graph G(sizes t) {\n"
                              "  %0 = input \"ids\" : i32[t]\n"
                              "  %1 = input \"g\" : f32[100, t]\n"
                              "  %2 = input \"x\" : f32[t, 64]\n"
                              "  %3 = matmul %1, %2 : f32[100, 64]\n"
                              "  %4 = scatter %2, %0 : f32[50, 64]\n"
                              "  %5 = pointwise %1, { exp($0) } : f32[100, t]\n"
                              "  %6 = matmul_fused %5, %2, { exp(acc) } : f32[100, 64]\n"
                              "  output loss = %3\n"
                              "  output a as gradient 0 = %4\n"
                              "  output b as gradient 1 = %6\n"
                              "  output c as gradient 2 = %3\n"
                              "}\n");
  cr_assert_eq(p->n_outputs, 4);
  cr_expect_not(p->outputs[0].goes_on || p->outputs[2].goes_on || p->outputs[3].goes_on);
  cr_expect(p->outputs[1].goes_on);
  cr_expect_eq(p->alongs[0].accumulate, TFM_ACCUMULATE_GOES_ON);
  p = plan("graph G(sizes t) {\n"
           "  %0 = input \"ids\" : i32[t]\n"
           "  %1 = input \"g\" : f32[100, t]\n"
           "  %2 = input \"x\" : f32[t, 64]\n"
           "  %3 = matmul %1, %2 : f32[100, 64]\n"
           "  %4 = scatter %2, %0, %3 : f32[100, 64]\n"
           "  output a as gradient 0 = %4\n"
           "}\n");
  cr_expect(p->outputs[0].goes_on && p->matmuls[0].in_order);
  cr_expect_eq(p->matmuls[0].direct, TFM_DIRECT_NONE);
}
