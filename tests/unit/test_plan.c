/* Plans: which steps, views instead of copies, hints, checks, kernels that are shared. Values are test_plan_run's. */
#include "../support/compiled_graph.h"

TestSuite(plan, .init = setup, .fini = teardown);

static const tfm_program *plan_on(Graph *graph, const char *target) { return &planned(graph, target)->program; }
static const tfm_program *plan(const char *text) { return plan_on(read_graph(text), "x86-64-v4"); }
static Graph *fused(const char *text) { return optimized(elaborated(text), 2); }

static const tfm_row_step *row(const tfm_program *program, uint32_t step) {
  cr_assert_lt(step, program->n_steps);
  cr_assert_eq(program->steps[step].kind, TFM_STEP_ROW);
  return &program->rows[program->steps[step].index];
}

static const KernelSpec *spec(const tfm_program *program, uint32_t kernel) {
  return &plan_of_program(program)->kernels.items[kernel].spec;
}

// ---- row steps ----

Test(plan, contiguous_axes_merge_and_what_is_only_an_output_is_written_there) {
  const tfm_program *p = plan("graph G(sizes b, t) {\n"
                              "  %0 = input \"x\" : f32[b, t, 64]\n"
                              "  %1 = input \"y\" : f32[b, 1, 64]\n"
                              "  %2 = pointwise %0, { neg($0) } : f32[b, t, 64]\n"
                              "  %3 = pointwise %0, %1, { add($0, $1) } : f32[b, t, 64]\n"
                              "  output n = %2\n"
                              "  output s = %3\n"
                              "}\n");
  cr_assert_eq(p->n_steps, 2);
  cr_assert_eq(p->n_buffers, 0);
  cr_assert_eq(row(p, 0)->rank, 2);
  expect_size(p, row(p, 0)->dims[0], "b*t");
  cr_assert_eq(row(p, 1)->rank, 3);
  cr_assert_eq(p->operands[row(p, 1)->first_operand].space, TFM_SPACE_OUTPUT);
}

Test(plan, coordinates_are_renumbered) {
  const tfm_program *p = plan("graph G(sizes b, t) {\n"
                              "  %0 = input \"x\" : f32[b, t, 1, 64]\n"
                              "  %1 = pointwise %0, { where(gt(index2, index1), $0, to_f32(index3)) } : f32[b, t, 1, 64]\n"
                              "  output y = %1\n"
                              "}\n");
  StrBuf out = strbuf_new(arena);
  kernel_spec_print(&out, spec(p, row(p, 0)->kernel));
  cr_assert_eq(row(p, 0)->rank, 3);
  cr_assert_not_null(strstr(out.text, "index 1"), "%s", out.text);
  cr_assert_not_null(strstr(out.text, "index 2"), "%s", out.text);
  cr_assert_not_null(strstr(out.text, "= 0 i32"), "%s", out.text);
  cr_assert_null(strstr(out.text, "index 3"), "%s", out.text);
}

Test(plan, sizes_become_operands) {
  const tfm_program *p = plan("graph G(sizes t) {\n"
                              "  %0 = input \"x\" : f32[t]\n"
                              "  %1 = pointwise %0, { div($0, size(f32, t)) } : f32[t]\n"
                              "  output y = %1\n"
                              "}\n");
  const tfm_operand *operand = &p->operands[row(p, 0)->first_operand + 2];
  cr_assert_eq(operand->space, TFM_SPACE_SIZE);
  expect_size(p, operand->index, "t");
}

Test(plan, reductions_over_the_last_and_other_axes) {
  const tfm_program *p = plan(
      "graph G(sizes b, t) {\n"
      "  %0 = input \"x\" : f32[b, t, 64]\n"
      "  %1 = reduce %0, reduction=mean, axis=1, domain=[b, t, 64], { $0 } : f32[b, 64]\n"
      "  %2 = reduce %0, reduction=argmax, axis=1, domain=[b, t, 64], { $0 } : i32[b, 64]\n"
      "  %3 = reduce %0, reduction=sum, axis=2, keepdim=true, domain=[b, t, 64], { mul($0, $0) } : f32[b, t, 1]\n"
      "  output a = %1\n"
      "  output b = %2\n"
      "  output c = %3\n"
      "}\n");
  cr_assert_eq(row(p, 0)->reduce, 2);
  expect_size(p, row(p, 0)->dims[1], "t");
  cr_assert_eq(row(p, 1)->reduce, 2);
  expect_size(p, row(p, 1)->dims[1], "t");
  cr_assert_eq(spec(p, row(p, 1)->kernel)->operands[1].access, COLUMN_CONTIGUOUS);
  cr_assert_eq(row(p, 2)->reduce, 1);
  expect_size(p, row(p, 2)->dims[0], "b*t");
  cr_assert_eq(spec(p, row(p, 2)->kernel)->operands[0].access, COLUMN_BROADCAST);
}

/* A softmax is always over the last axis of the graph; what permutes its operand and its result costs nothing. */
Test(plan, a_permuted_softmax_goes_along_its_rows) {
  const tfm_program *p = plan("graph G(sizes b, n) {\n"
                              "  %0 = input \"x\" : f32[b, n, 256]\n"
                              "  %1 = permute %0, axes=[0, 2, 1] : f32[b, 256, n]\n"
                              "  %2 = reduce %1, reduction=softmax, axis=2, domain=[b, 256, n], { $0 } : f32[b, 256, n]\n"
                              "  %3 = permute %2, axes=[0, 2, 1] : f32[b, n, 256]\n"
                              "  %4 = reduce %0, reduction=softmax, axis=2, domain=[b, n, 256], { $0 } : f32[b, n, 256]\n"
                              "  %5 = permute %4, axes=[0, 2, 1] : f32[b, 256, n]\n"
                              "  output y = %3\n"
                              "  output z = %5\n"
                              "}\n");
  cr_assert_eq(p->n_steps, 3); /* z is copied */
  cr_assert_eq(row(p, 0)->reduce, 2);
  expect_size(p, row(p, 0)->dims[1], "n");
  cr_assert_eq(p->operands[row(p, 0)->first_operand].space, TFM_SPACE_OUTPUT);
  for (int i = 0; i < 2; i++) cr_assert_eq(spec(p, row(p, 0)->kernel)->operands[i].access, COLUMN_CONTIGUOUS);
  cr_assert_eq(row(p, 1)->reduce, 1);
  for (int i = 0; i < 2; i++) cr_assert_eq(spec(p, row(p, 1)->kernel)->operands[i].access, COLUMN_CONTIGUOUS);
}

/* Rows are the axis along which a permuted operand is contiguous, whatever stands between it and the columns. */
Test(plan, permuted_operands_are_transposed) {
  const tfm_program *p = plan(
      "graph G(sizes a, b, c) {\n"
      "  %0 = input \"x\" : f32[a, b, c]\n"
      "  %1 = input \"y\" : f32[c, b, a]\n"
      "  %2 = permute %0, axes=[2, 1, 0] : f32[c, b, a]\n"
      "  %3 = pointwise %2, %1, { add($0, $1) } : f32[c, b, a]\n"
      "  output z = %3\n"
      "}\n");
  cr_assert_eq(p->n_steps, 1);
  expect_size(p, row(p, 0)->dims[0], "b");
  expect_size(p, row(p, 0)->dims[1], "c");
  const KernelSpec *kernel = spec(p, row(p, 0)->kernel);
  cr_assert_eq(kernel->operands[0].access, COLUMN_CONTIGUOUS);
  cr_assert_eq(kernel->operands[1].access, COLUMN_TRANSPOSED);
  cr_assert_eq(kernel->operands[2].access, COLUMN_CONTIGUOUS);
}

Test(plan, a_reshaped_output_is_copied_once) {
  const tfm_program *p = plan(
      "graph G(sizes b, t) {\n"
      "  %0 = input \"x\" : f32[b, 12, t, 64]\n"
      "  %1 = permute %0, axes=[0, 2, 1, 3] : f32[b, t, 12, 64]\n"
      "  %2 = reshape %1 : f32[b, t, 768]\n"
      "  %3 = reshape %0 : f32[b, 12*t, 64]\n"
      "  output y = %2\n"
      "  output z = %3\n"
      "}\n");
  cr_assert_eq(p->n_steps, 2);
  cr_assert_eq(p->n_buffers, 0);
  for (uint32_t i = 0; i < 2; i++) cr_assert_eq(p->operands[row(p, i)->first_operand].space, TFM_SPACE_OUTPUT);
}

Test(plan, many_operands_are_split) {
  StrBuf text = strbuf_new(arena), sum = strbuf_new(arena), names = strbuf_new(arena);
  strbuf_add(&text, "graph G(sizes t) {\n");
  for (int i = 0; i < 100; i++) {
    strbuf_printf(&text, "  %%%d = input \"x%d\" : f32[t, 3]\n", i, i);
    strbuf_printf(&names, "%%%d, ", i);
    if (i) strbuf_printf(&sum, ", $%d)", i);
  }
  strbuf_printf(&text, "  %%100 = pointwise %s{ ", names.text);
  for (int i = 1; i < 100; i++) strbuf_add(&text, "add(");
  strbuf_printf(&text, "$0%s } : f32[t, 3]\n  output y = %%100\n}\n", sum.text);
  const tfm_program *p = plan(text.text);
  cr_assert_eq(p->n_steps, 4);
  for (uint32_t i = 0; i < p->n_steps; i++) cr_assert_leq(row(p, i)->n_operands, TFM_MAX_OPERANDS);
}

// ---- placing ----

Test(plan, parts_of_a_concat_are_written_in_place) {
  const tfm_program *p = plan("graph G(sizes b, t) {\n"
                              "  %0 = input \"x\" : f32[b, t, 64]\n"
                              "  %1 = pointwise %0, { neg($0) } : f32[b, t, 64]\n"
                              "  %2 = pointwise %0, { exp($0) } : f32[b, t, 64]\n"
                              "  %3 = reshape %2 : f32[b, t, 64]\n"
                              "  %4 = concat %1, %0, %3, axis=1 : f32[b, 3*t, 64]\n"
                              "  %5 = pointwise %4, { neg($0) } : f32[b, 3*t, 64]\n"
                              "  output y = %4\n"
                              "  output z = %5\n"
                              "}\n");
  cr_assert_eq(p->n_steps, 4); /* neg, exp, the copy of x, the second neg */
  cr_assert_eq(p->operands[row(p, 1)->first_operand].space, TFM_SPACE_OUTPUT);
  expect_size(p, p->operands[row(p, 1)->first_operand].offset, "128*t");
  cr_assert_eq(p->n_buffers, 1);
  cr_assert_eq(p->outputs[0].stand_in, 1); /* z may be wanted when y is not */
  cr_assert_eq(p->buffers[0].last_step, 3);
  cr_assert_eq(p->outputs[1].stand_in, 0);
}

Test(plan, outputs_stay_untouched_until_nothing_can_fail) {
  const tfm_program *p = plan("graph G(sizes t) {\n"
                              "  %0 = input \"x\" : i32[t]\n"
                              "  %1 = pointwise %0, { neg($0) } : i32[t]\n"
                              "  %2 = pointwise %0, { floordiv($0, $0) } : i32[t]\n"
                              "  %3 = pointwise %0, { add($0, 1) } : i32[t]\n"
                              "  output a = %1\n"
                              "  output b = %2\n"
                              "  output c = %3\n"
                              "}\n");
  cr_assert_eq(p->n_steps, 5);
  cr_assert_eq(p->operands[row(p, 0)->first_operand].space, TFM_SPACE_BUFFER);
  cr_assert_eq(p->operands[row(p, 1)->first_operand].space, TFM_SPACE_BUFFER);
  cr_assert_eq(p->operands[row(p, 2)->first_operand].space, TFM_SPACE_OUTPUT);
}

Test(plan, outputs_that_are_inputs_weights_views_and_duplicates) {
  const tfm_program *p = plan("graph G(sizes t) {\n"
                              "  %0 = input \"x\" : f32[t, 4]\n"
                              "  %1 = weight \"w\" : f32[3]\n"
                              "  %2 = permute %0, axes=[1, 0] : f32[4, t]\n"
                              "  %3 = full true : bool[2]\n"
                              "  output a = %0\n"
                              "  output b = %1\n"
                              "  output c = %2\n"
                              "  output d = %2\n"
                              "  output e = %3\n"
                              "}\n");
  cr_assert_eq(p->n_steps, 5);
  cr_assert_eq(p->n_weights, 2);
  cr_assert_eq(p->n_buffers, 0);
}

Test(plan, what_depends_on_sizes_alone_is_prepared) {
  const tfm_program *p = plan("graph G(sizes t) {\n"
                              "  %0 = input \"x\" : f32[t, 8]\n"
                              "  %1 = pointwise { index0 } : i32[t]\n"
                              "  %2 = sinusoid %1, base=10000.0, interleaved=true : f32[t, 8]\n"
                              "  %3 = pointwise %0, %2, { add($0, $1) } : f32[t, 8]\n"
                              "  output y = %3\n"
                              "}\n");
  cr_assert_eq(p->n_steps, 3);
  cr_assert(p->steps[0].prepare && p->steps[1].prepare && !p->steps[2].prepare);
  cr_assert(p->buffers[0].persistent && p->buffers[1].persistent);
  cr_assert_eq(p->steps[1].kind, TFM_STEP_TABLE);
}

Test(plan, prepared_values_are_no_part_of_a_concat_that_is_not) {
  const tfm_program *p = plan("graph G(sizes t) {\n"
                              "  %0 = input \"x\" : i32[t]\n"
                              "  %1 = pointwise { index0 } : i32[t]\n"
                              "  %2 = concat %0, %1, axis=0 : i32[2*t]\n"
                              "  %3 = pointwise %2, { neg($0) } : i32[2*t]\n"
                              "  output y = %2\n"
                              "  output z = %3\n"
                              "}\n");
  cr_assert(p->steps[0].prepare);
  cr_assert_eq(p->n_buffers, 2);
  cr_assert(p->buffers[0].persistent && !p->buffers[1].persistent);
}

// ---- ids and checks ----

Test(plan, limits_of_inputs_and_of_computed_ids) {
  const tfm_program *p = plan("graph G(sizes b, t) {\n"
                              "  %0 = input \"ids\" : i32[b, t]\n"
                              "  %1 = weight \"e\" : f32[100, 64]\n"
                              "  %2 = reshape %0 : i32[b*t]\n"
                              "  %3 = pointwise %0, { add($0, 1) } : i32[b, t]\n"
                              "  %4 = pointwise %1, %2, { gather($0, $1) } : f32[b*t, 64]\n"
                              "  %5 = pointwise %1, %3, { gather($0, $1) } : f32[b, t, 64]\n"
                              "  %6 = pointwise %1, %3, { neg(gather($0, $1)) } : f32[b, t, 64]\n"
                              "  check t <= 512, \"{t=} is more than {b + 1}\"\n"
                              "  output x = %4\n"
                              "  output y = %5\n"
                              "  output z = %6\n"
                              "}\n");
  cr_assert_eq(p->n_id_limits, 1);
  expect_size(p, p->id_limits[0].limit, "100");
  cr_assert_eq(count_steps(p, TFM_STEP_CHECK_IDS), 1);
  cr_assert_eq(p->n_checks, 1);
  cr_assert_eq(p->checks[0].n_conditions, 1);
  cr_assert_eq(p->conditions[0].test, TFM_LE);
  cr_assert_str_eq(p->parts[p->checks[0].first_part].text, "t = ");
}

Test(plan, tables_are_walked_by_their_ids) {
  const tfm_program *p = plan("graph G(sizes b, t) {\n"
                              "  %0 = input \"ids\" : i32[b, t]\n"
                              "  %1 = weight \"e\" : f32[100, 64]\n"
                              "  %2 = pointwise %1, %0, { gather($0, $1) } : f32[b, t, 64]\n"
                              "  %3 = weight \"s\" : f32[100, 1]\n"
                              "  %4 = pointwise %3, %0, { gather($0, $1) } : f32[b, t, 1]\n"
                              "  output y = %2\n  output z = %4\n"
                              "}\n");
  const tfm_operand *operands = &p->operands[row(p, 0)->first_operand];
  cr_assert_eq(row(p, 0)->rank, 2);
  cr_assert_eq(operands[2].gathered, 1);
  expect_size(p, operands[2].strides[0], "64");
  expect_size(p, operands[1].strides[0], "1");
  expect_size(p, row(p, 1)->dims[1], "t"); /* ids of scalars are columns */
  expect_size(p, p->operands[row(p, 1)->first_operand + 1].strides[1], "1");
}

/* A product's panels serve a look-up in the same weight; without one each row is a panel. */
Test(plan, tables_of_8_bits_are_looked_up_where_a_product_has_them) {
  const tfm_program *p = plan("graph G(sizes b, t) {\n"
                              "  %0 = input \"ids\" : i32[b, t]\n"
                              "  %1 = weight \"e\" : f32[100, 64]\n"
                              "  %2 = weight \"alone\" : f32[100, 64]\n"
                              "  %3 = round_to %1, form=int8 : f32[100, 64]\n"
                              "  %4 = round_to %2, form=int8 : f32[100, 64]\n"
                              "  %5 = pointwise %3, %0, %4, { add(gather($0, $1), gather($2, $1)) } : f32[b, t, 64]\n"
                              "  %6 = linear %5, %1, form=int8 : f32[b, t, 100]\n"
                              "  output y = %6\n"
                              "}\n");
  cr_assert_eq(p->n_weights, 2);
  for (int i = 0; i < 2; i++) {
    cr_expect_eq(p->alongs[i].what, TFM_ALONG_LOOK_UP);
    cr_expect_eq(p->alongs[i].form, TFM_FORM_INT8);
    cr_expect_eq(p->alongs[i].panel, i ? 1 : p->gemms[0].panel);
    cr_expect_eq(p->alongs[i].x.index == p->gemms[0].weight, i == 0);
  }
}

// ---- products ----

#define LINEAR(shape, expr, dtype)                                   \
  "graph G(sizes b, t) {\n"                                          \
  "  %0 = input \"x\" : f32[" shape "]\n"                            \
  "  %1 = weight \"w\" : f32[100, 64]\n"                             \
  "  %2 = linear %0, %1, { " expr " } : " dtype "[b, t, 100]\n"      \
  "  output y = %2\n"                                                \
  "}\n"

Test(plan, linear_runs_its_expression_in_place) {
  const tfm_program *p = plan(LINEAR("b, t, 64", "gelu(acc)", "f32"));
  cr_assert_eq(p->n_steps, 1);
  cr_assert_neq(p->gemms[0].epilogue, TFM_NONE);
  cr_assert_eq(p->gemms[0].panel, 64); /* 48 and 32 waste as much or more */
  cr_assert_eq(p->weights[0].bytes, 128 * 64 * 4);
}

Test(plan, a_result_that_is_no_f32_is_a_step_of_its_own) {
  const tfm_program *p = plan(LINEAR("b, t, 64", "gt(acc, 0.0)", "bool"));
  cr_assert_eq(p->n_steps, 2);
  cr_assert_eq(p->gemms[0].epilogue, TFM_NONE);
}

Test(plan, rows_without_a_static_stride_are_copied) {
  const tfm_program *p = plan("graph G(sizes b, t) {\n"
                              "  %0 = input \"x\" : f32[b, t, 64]\n"
                              "  %1 = weight \"w\" : f32[100, 64]\n"
                              "  %2 = slice %0, starts=[0, 0, 0] : f32[b, 1, 64]\n"
                              "  %3 = reshape %2 : f32[b, 64]\n"
                              "  %4 = linear %3, %1 : f32[b, 100]\n"
                              "  %5 = linear %3, %1, { neg(acc) } : f32[b, 100]\n"
                              "  output y = %4\n"
                              "  output z = %5\n"
                              "}\n");
  cr_assert_eq(p->n_steps, 3);
  cr_assert_eq(row(p, 0)->rank, 2);
  cr_assert_eq(p->n_weights, 1);
}

Test(plan, products_of_a_softmax_skip_zeros) {
  const tfm_program *p = plan(
      "graph G(sizes b, t) {\n"
      "  %0 = input \"x\" : f32[b, 4, t, t]\n"
      "  %1 = input \"v\" : f32[b, 4, t, 16]\n"
      "  %2 = reduce %0, reduction=softmax, axis=3, domain=[b, 4, t, t], { $0 } : f32[b, 4, t, t]\n"
      "  %3 = matmul %2, %1 : f32[b, 4, t, 16]\n"
      "  %4 = matmul %0, %1 : f32[b, 4, t, 16]\n"
      "  %5 = permute %3, axes=[0, 2, 1, 3] : f32[b, t, 4, 16]\n"
      "  %6 = reshape %5 : f32[b, t, 64]\n"
      "  output y = %4\n"
      "  output z = %6\n"
      "}\n");
  cr_assert(spec(p, p->matmuls[0].tiles[1])->exact_zero);
  cr_assert_eq(p->matmuls[0].direct, TFM_DIRECT_NONE);
  cr_assert_eq(p->matmuls[1].direct, TFM_DIRECT_COLUMNS); /* which looks at no number */
  cr_assert_eq(p->n_steps, 3); /* the heads are merged by strides alone */
}

/* In training both halves put the heads of an attention side by side, each in its own shape. */
#define MERGED(shape)                                                \
  plan("graph G(sizes b, t) {\n"                                     \
       "  %0 = input \"x\" : f32[b, 4, t, t]\n"                      \
       "  %1 = input \"v\" : f32[b, 4, t, 64]\n"                     \
       "  %2 = matmul %0, %1 : f32[b, 4, t, 64]\n"                   \
       "  %3 = permute %2, axes=[0, 2, 1, 3] : f32[b, t, 4, 64]\n"   \
       "  %4 = reshape %3 : f32[b, t, 256]\n"                        \
       "  %5 = reshape %3 : f32[" shape "]\n"                        \
       "  %6 = pointwise %4, { neg($0) } : f32[b, t, 256]\n"         \
       "  %7 = pointwise %5, { sin($0) } : f32[" shape "]\n"         \
       "  output y = %6\n"                                           \
       "  output z = %7\n"                                           \
       "}\n")

Test(plan, several_reshapes_see_one_layout) {
  const tfm_program *p = MERGED("b*t, 256");
  cr_assert_eq(p->n_steps, 3);
  expect_size(p, p->matmuls[0].c.strides[1], "64");
  expect_size(p, p->matmuls[0].c.strides[2], "272");
}

Test(plan, reshapes_that_see_no_common_layout_are_copied) {
  const tfm_program *p = MERGED("b, 4*t, 64");
  cr_assert_eq(p->n_steps, 4);
  expect_size(p, p->matmuls[0].c.strides[1], "80");
}

Test(plan, batches_of_one_matrix_are_rows) {
  const tfm_program *p = plan("graph G(sizes b, t) {\n"
                              "  %0 = input \"x\" : f32[b, t, 16]\n"
                              "  %1 = input \"y\" : f32[16, 8]\n"
                              "  %2 = matmul %0, %1 : f32[b, t, 8]\n"
                              "  output y = %2\n"
                              "}\n");
  cr_assert_eq(p->matmuls[0].rank, 2);
  expect_size(p, p->matmuls[0].dims[0], "b*t");
}

// ---- attention ----

#define ATTENTION(e, expr)                                                            \
  "graph G(sizes b, t) {\n"                                                           \
  "  %0 = input \"x\" : f32[b, t, 3, 4, 64]\n"                                        \
  "  %1 = input \"pad\" : bool[b, 1, 1, t]\n"                                         \
  "  %2 = input \"full\" : bool[b, 1, t, t]\n"                                        \
  "  %3 = slice %0, starts=[0, 0, 0, 0, 0] : f32[b, t, 1, 4, 64]\n"                   \
  "  %4 = slice %0, starts=[0, 0, 1, 0, 0] : f32[b, t, 1, 4, 64]\n"                   \
  "  %5 = slice %0, starts=[0, 0, 2, 0, 0] : f32[b, t, 1, 4, " e "]\n"                \
  "  %6 = reshape %3 : f32[b, t, 4, 64]\n"                                            \
  "  %7 = reshape %4 : f32[b, t, 4, 64]\n"                                            \
  "  %8 = reshape %5 : f32[b, t, 4, " e "]\n"                                         \
  "  %9 = permute %6, axes=[0, 2, 1, 3] : f32[b, 4, t, 64]\n"                         \
  "  %10 = permute %7, axes=[0, 2, 1, 3] : f32[b, 4, t, 64]\n"                        \
  "  %11 = permute %8, axes=[0, 2, 1, 3] : f32[b, 4, t, " e "]\n"                     \
  "  %12 = attention %9, %10, %11, %1, %2, { " expr " } : f32[b, 4, t, " e "]\n"      \
  "  %13 = permute %12, axes=[0, 2, 1, 3] : f32[b, t, 4, " e "]\n"                    \
  "  output y = %13\n"                                                                \
  "}\n"

static const tfm_attention_step *attention(const char *text) {
  const tfm_program *p = plan(text);
  cr_assert_eq(p->n_steps, 1); /* no copies of q, k, v or the result */
  return &p->attentions[0];
}

Test(plan, attention_reads_heads_in_place) {
  const tfm_attention_step *step = attention(ATTENTION("64", "mul(acc, 0.125)"));
  cr_assert(step->pv_width == 64 && !step->v_packed && step->qk_width == 64 && step->rank == 4);
  cr_assert(!step->causal && !step->padding && !step->has_weights);
  cr_assert_neq(step->score, TFM_NONE);
  cr_assert_eq(step->keys_in_place, TFM_NONE, "as many queries as keys");
}

Test(plan, values_of_odd_width_are_packed) {
  const tfm_attention_step *step = attention(ATTENTION("20", "acc"));
  cr_assert(step->v_packed && step->pv_width == 32 && step->pack_values != TFM_NONE);
  cr_assert_eq(step->score, TFM_NONE);
}

Test(plan, values_of_whole_vectors_are_one_tile) {
  const tfm_attention_step *step = attention(ATTENTION("48", "acc"));
  cr_assert(!step->v_packed && step->pv_width == 48);
}

static void expect_hints(const char *text, bool causal, uint8_t padding, bool padding_true) {
  const tfm_attention_step *step = attention(text);
  cr_assert_eq(step->causal, causal, "%s", text);
  cr_assert_eq(step->padding, padding, "%s", text);
  if (padding) cr_assert_eq(step->padding_true, padding_true, "%s", text);
}

Test(plan, hints_of_masks) {
  expect_hints(ATTENTION("64", "where(gt(index0, index1), -inf, acc)"), true, 0, false);
  expect_hints(ATTENTION("64", "where(le(index0, index1), acc, -inf)"), true, 0, false);
  expect_hints(ATTENTION("64", "where(lt(index1, index0), -inf, acc)"), true, 0, false);
  expect_hints(ATTENTION("64", "where($3, -inf, acc)"), false, 1, true);
  expect_hints(ATTENTION("64", "where(not($3), -inf, acc)"), false, 1, false);
  expect_hints(ATTENTION("64", "where($3, acc, -inf)"), false, 1, false);
  expect_hints(ATTENTION("64", "where(or($3, gt(index0, index1)), -inf, acc)"), true, 1, true);
  expect_hints(ATTENTION("64", "where(and(not($3), le(index0, index1)), acc, -inf)"), true, 1, true);
  expect_hints(ATTENTION("64", "where($4, -inf, where($3, -inf, mul(acc, 0.5)))"), false, 2, true);
}

Test(plan, a_mask_that_does_nothing_else) {
  cr_assert(attention(ATTENTION("64", "where($3, -inf, acc)"))->padding_only);
  cr_assert(attention(ATTENTION("64", "where(not($3), acc, -inf)"))->padding_only);
  cr_assert(!attention(ATTENTION("64", "where($3, -inf, mul(acc, 0.5))"))->padding_only);
  cr_assert(!attention(ATTENTION("64", "where(or($3, gt(index0, index1)), -inf, acc)"))->padding_only);
  cr_assert(!attention(ATTENTION("64", "where($4, -inf, where($3, -inf, acc))"))->padding_only);
  cr_assert(!attention(ATTENTION("64", "where(gt(index0, index1), -inf, acc)"))->padding_only);
}

Test(plan, no_hints_where_keys_may_count) {
  expect_hints(ATTENTION("64", "where(gt(index1, index0), -inf, acc)"), false, 0, false);
  expect_hints(ATTENTION("64", "where(gt(index0, index1), -10000000000.0, acc)"), false, 0, false);
  expect_hints(ATTENTION("64", "where(and($3, gt(index0, index1)), -inf, acc)"), false, 0, false);
  expect_hints(ATTENTION("64", "where($4, -inf, acc)"), false, 0, false);
  expect_hints(ATTENTION("64", "add(where($3, -inf, acc), 1.0)"), false, 0, false);
  expect_hints(ATTENTION("64", "where($3, 0.0, where($3, -inf, acc))"), false, 0, false);
  expect_hints(ATTENTION("64", "where(gt(index0, add(index1, index1)), -inf, acc)"), false, 0, false);
}

static void expect_offset(const char *text, const char *offset) {
  const tfm_program *p = plan(text);
  cr_assert(p->attentions[0].causal, "\n%s", text);
  expect_size(p, p->attentions[0].causal_offset, offset);
}

Test(plan, a_causal_mask_may_count_from_another_key) {
  expect_offset(ATTENTION("64", "where(gt(index0, index1), -inf, acc)"), "0");
  expect_offset(ATTENTION("64", "where(gt(index0, add(index1, 1)), -inf, acc)"), "1");
  expect_offset(ATTENTION("64", "where(gt(index0, add(size(i32, b), index1)), -inf, acc)"), "b");
  expect_offset(ATTENTION("64", "where(lt(sub(index1, size(i32, t)), index0), -inf, acc)"), "-1*t");
  expect_offset(ATTENTION("64", "where(le(index0, add(index1, size(i32, b))), acc, -inf)"), "b");
}

// ---- whole models ----

#define ENCODER(depth)                                                                         \
  "model M() {\n"                                                                              \
  "  layers = " depth " * EncoderLayer(64, 4, 256, gelu)\n"                                    \
  "  forward(x: f32[batch, time, 64], pad: bool[batch, time]) {\n"                             \
  "    return y = layers(x, src_key_padding_mask = pad, is_causal = true)\n"                   \
  "  }\n"                                                                                      \
  "}\n"

Test(plan, kernels_do_not_grow_with_depth) {
  for (const TargetInfo *target = targets; target->name; target++) {
    const tfm_program *two = plan_on(fused(ENCODER("3")), target->name);
    const tfm_program *many = plan_on(fused(ENCODER("48")), target->name);
    cr_assert_eq(two->n_kernels, many->n_kernels);
    for (uint32_t i = 0; i < two->n_kernels; i++)
      cr_assert_str_eq(plan_of_program(two)->kernels.items[i].name, plan_of_program(many)->kernels.items[i].name);
    cr_assert_eq(count_steps(many, TFM_STEP_GEMM), 4 * 48);
    cr_assert_eq(count_steps(many, TFM_STEP_ATTENTION), 48);
  }
}

Test(plan, memory_is_linear_in_time) {
  const tfm_program *p = plan_on(fused(ENCODER("2")), "x86-64-v4");
  for (uint32_t i = 0; i < p->n_buffers; i++) {
    const tfm_polynomial *elements = &p->polynomials[p->buffers[i].elements];
    for (uint32_t j = 0; j < elements->n_terms; j++) {
      const tfm_term *term = &p->terms[elements->first_term + j];
      int degree = 0;
      for (uint32_t k = 0; k < term->degree; k++) degree += strcmp(p->symbols[term->symbols[k]], "time") == 0;
      cr_assert_leq(degree, 1, "buffer %u", i);
    }
  }
}

Test(plan, text_is_the_same_every_time) {
  const char *texts[2];
  for (int i = 0; i < 2; i++) {
    StrBuf out = strbuf_new(arena);
    plan_print(&out, plan_of_program(plan_on(fused(ENCODER("2")), "x86-64-v3")));
    texts[i] = out.text;
  }
  cr_assert_str_eq(texts[0], texts[1]);
  cr_assert_not_null(strstr(texts[0], "attention layers.0.self_attn"));
}

Test(plan, weights_lie_in_the_order_of_their_use) {
  const tfm_program *p = plan_on(fused(ENCODER("4")), "x86-64-v4");
  uint32_t last = 0;
  for (uint32_t i = 0; i < p->n_steps; i++) {
    if (p->steps[i].kind != TFM_STEP_GEMM) continue;
    uint32_t weight = p->gemms[p->steps[i].index].weight;
    cr_assert_gt(weight + 1, last);
    last = weight + 1;
  }
  for (uint32_t i = 0; i < p->n_weights; i++) cr_assert_eq(p->weights[i].offset % 64, 0);
  cr_assert_geq(p->weights_bytes, p->weights[p->n_weights - 1].offset + p->weights[p->n_weights - 1].bytes + 64);
}

Test(plan, a_product_of_seven_sizes_is_the_longest) {
  const tfm_program *p = plan("graph G(sizes a, b, c, d, e, f, g) {\n"
                              "  %0 = input \"x\" : f32[a, b, c, d, e, f, g, 4]\n"
                              "  %1 = input \"w\" : f32[4]\n"
                              "  %2 = pointwise %0, %1, { add($0, $1) } : f32[a, b, c, d, e, f, g, 4]\n"
                              "  output y = %2\n"
                              "}\n");
  expect_size(p, row(p, 0)->dims[0], "a*b*c*d*e*f*g");
  expect_size(p, row(p, 0)->dims[1], "4");
}

Test(plan, sizes_beyond_the_runtime_are_refused) {
  Graph *graph = graph_from_text("graph G(sizes a, b, c, d, e, f, g, h) {\n"
                      "  %0 = input \"x\" : f32[a, b, c, d, e, f, g, h]\n"
                      "  %1 = pointwise %0, { neg($0) } : f32[a, b, c, d, e, f, g, h]\n"
                      "  %2 = permute %1, axes=[7, 6, 5, 4, 3, 2, 1, 0] : f32[h, g, f, e, d, c, b, a]\n"
                      "  output y = %2\n"
                      "}\n");
  cr_assert_null(plan_graph(arena, &diag, graph, target_find("x86-64-v4")));
  cr_assert_eq(diag.messages.items[0].code, DIAG_LIMIT);
}

Test(plan, weights_beyond_memory_are_refused) {
  static const char *const uses[] = {"linear %0, %1 : f32[t, 3000000000000]", "matmul %2, %3 : f32[8, t]"};
  for (int i = 0; i < 2; i++) {
    const char *text = arena_printf(arena,
                                    "graph G(sizes t) {\n"
                                    "  %%0 = input \"x\" : f32[t, 8000000]\n"
                                    "  %%1 = weight \"w\" : f32[3000000000000, 8000000]\n"
                                    "  %%2 = weight \"v\" : f32[8, 3000000000000]\n"
                                    "  %%3 = input \"y\" : f32[3000000000000, t]\n"
                                    "  %%4 = %s\n"
                                    "  output y = %%4\n"
                                    "}\n", uses[i]);
    diag = diag_new(arena);
    Graph *graph = graph_from_text(text);
    cr_assert_not_null(graph, "%s", fault());
    cr_assert_null(plan_graph(arena, &diag, graph, target_find("x86-64")));
    cr_assert_eq(diag.messages.items[0].code, DIAG_LIMIT);
  }
}
