/* Runs of the reference interpreter: inputs, sizes, checks, ids, weights, what observers see, ragged batches. */
#include "eval_case.h"

TestSuite(eval_run, .init = setup, .fini = teardown);

// ---- inputs, sizes, checks ----

#define TWO "%0 = input \"alpha\" : f32[batch, time]\n%1 = input \"beta\" : f32[time, 2]\n"
#define SUM "%2 = sum %0, axis=1 : f32[batch]\noutput z = %2"
#define SIZES "sizes batch, time"

Test(eval_run, inputs_are_checked) {
  F32("alpha", SHAPE(1, 2), 1, 2);
  fails(SIZES, TWO SUM, DIAG_INPUT_MISSING, "input 'beta' f32[time, 2] is missing");
  F32("alpha", SHAPE(1, 2), 1, 2);
  F32("betta", SHAPE(2, 2), 1, 2, 3, 4);
  fails(SIZES, TWO SUM, DIAG_INPUT_UNKNOWN, "G has no input 'betta'; did you mean 'beta'?");
  F32("alpha", SHAPE(1, 2), 1, 2);
  F32("time.lengths", SHAPE(1), 1);
  fails(SIZES, TWO SUM, DIAG_INPUT_UNKNOWN, "it has alpha, beta");
  I32("alpha", SHAPE(1, 2), 1, 2);
  F32("beta", SHAPE(2, 2), 1, 2, 3, 4);
  fails(SIZES, TWO SUM, DIAG_INPUT_TYPE, "input 'alpha' is i32, f32 is needed");
  F32("alpha", SHAPE(1, 2, 1), 1, 2);
  F32("beta", SHAPE(2, 2), 1, 2, 3, 4);
  fails(SIZES, TWO SUM, DIAG_INPUT_SHAPE, "input 'alpha' has shape [1, 2, 1], [batch, time] is needed");
  F32("alpha", SHAPE(1, 2), 1, 2);
  F32("beta", SHAPE(3, 2), 1, 2, 3, 4, 5, 6);
  fails(SIZES, TWO SUM, DIAG_INPUT_SHAPE, "time is 2 in input 'alpha' and 3 in input 'beta'");
  F32("alpha", SHAPE(1, 2), 1, 2);
  F32("beta", SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
  fails(SIZES, TWO SUM, DIAG_INPUT_SHAPE, "input 'beta' has shape [2, 3], [time = 2, 2] is needed");
}

Test(eval_run, checks_of_the_run) {
#define CHECKED "%0 = input \"x\" : f32[time]\noutput z = %0\ncheck time <= 2 or not time == 4, \"the sequence is {time}, {2*time=}\"\n"
  F32("x", SHAPE(4), 1, 2, 3, 4);
  fails("sizes time", CHECKED, DIAG_RUN_CHECK, "the sequence is 4, 2*time = 8");
  F32("x", SHAPE(3), 1, 2, 3);
  cr_assert(run_sized("sizes time", CHECKED));
}

Test(eval_run, a_graph_without_checks_cannot_read_astray) {
  F32("x", SHAPE(3), 1, 2, 3);
  F32("y", SHAPE(5), 1, 2, 3, 4, 5);
  fails("sizes a, b", "%0 = input \"x\" : f32[a]\n%1 = input \"y\" : f32[b]\n%2 = add %0, %1 : f32[a]\noutput z = %2",
        DIAG_RUN_CHECK, "do not agree");
  F32("x", SHAPE(3), 1, 2, 3);
  fails("sizes a", "%0 = input \"x\" : f32[a]\n%1 = slice %0, starts=[2*a - 4] : f32[2]\noutput z = %1", DIAG_RUN_CHECK,
        "not within");
  F32("x", SHAPE(3), 1, 2, 3);
  fails("sizes a", "%0 = input \"x\" : f32[a]\n%1 = full 1.0 : f32[a - 5]\noutput z = %1", DIAG_RUN_CHECK, "negative");
  F32("x", SHAPE(3), 1, 2, 3);
  fails("sizes a, b", "%0 = input \"x\" : f32[a]\n%1 = full 1.0 : f32[b]\noutput z = %1", DIAG_RUN_CHECK, "binds the size 'b'");
  fails("", "%0 = full 1.0 : f32[4000000000, 4000000000]\noutput z = %0", DIAG_MEMORY, "too large");
}

// ---- weights, static values, observer ----

static const Tensor *lookup(void *context, const char *name) {
  const Tensor *tensor = context;
  return strcmp(name, "w") == 0 ? tensor : NULL;
}

Test(eval_run, static_values_need_no_run) {
  Graph *graph = read("sizes n", "%0 = input \"x\" : f32[n]\n%1 = weight \"w\" : f32[2]\n%2 = full 3.0 : f32[]\n"
                                 "%3 = mul %1, %2 : f32[2]\n%4 = weight \"unused\" : f32[9]\n%5 = weight \"v\" : f32[2]");
  const Node *node = graph->first->next->next->next;
  Tensor *w = tensor_new(arena, DTYPE_F32, 1, (int64_t[]){2});
  ((float *)w->data)[1] = 5;
  Tensor *value = graph_eval_static(arena, &diag, graph, node, lookup, w);
  cr_assert(value && ((float *)value->data)[1] == 15);
  cr_assert_null(graph_eval_static(arena, &diag, graph, graph->last, lookup, w));
  cr_assert_eq(diag.messages.items[0].code, DIAG_WEIGHT_MISSING);
}

static void observe(void *context, const Node *node, const Tensor *value) {
  StrBuf *out = context;
  strbuf_printf(out, "%s %d; ", op_table[node->op].name, (int)tensor_elements(value));
}

Test(eval_run, an_observer_sees_every_node_that_is_needed) {
  Graph *graph = read("", "%0 = full 3.0 : f32[2]\n%1 = exp %0 : f32[2]\n%2 = neg %0 : f32[2]\n%3 = sum %1, axis=0 : f32[]\n"
                          "output z = %3");
  StrBuf seen = strbuf_new(arena);
  const EvalCall call = {.graph = graph, .inputs = &(EvalInputs){0}, .options = {.observer = observe, .observer_context = &seen}};
  cr_assert(graph_eval(arena, &diag, &call, outputs));
  cr_assert_str_eq(seen.text, "full 2; exp 2; sum 1; ");
}

// ---- ragged ----

#define RAGGED "sizes batch, time; ragged time of batch"
#define ITEMS "%0 = input \"x\" : f32[batch, time]\n%1 = softmax %0, axis=1 : f32[batch, time]\n" \
              "%2 = sum %0, axis=1 : f32[batch]\noutput z = %1\noutput s = %2\ncheck time <= 3, \"{time}\""

Test(eval_run, items_of_a_ragged_batch_are_computed_alone) {
  F32("x", SHAPE(3, 3), 0, 0, 0, 1, NAN, NAN, NAN, NAN, NAN);
  I32("time.lengths", SHAPE(3), 3, 1, 0);
  cr_assert(run_sized(RAGGED, ITEMS));
  WANT_F32(SHAPE(3, 3), 0.33333333f, 0.33333333f, 0.33333333f, 1, 0, 0, 0, 0, 0);
  const float *sums = outputs[1].data;
  cr_assert(sums[0] == 0 && sums[1] == 1 && sums[2] == 0);
  F32("x", SHAPE(1, 2), 0, 0);
  cr_assert(run_sized(RAGGED, ITEMS));
  WANT_F32(SHAPE(1, 2), 0.5f, 0.5f);
  F32("x", SHAPE(0, 2), 0);
  cr_assert(run_sized(RAGGED, ITEMS));
  cr_assert(outputs[0].dims[0] == 0 && outputs[0].dims[1] == 2);
  F32("x", SHAPE(1, 4), 0, 0, 0, 0);
  I32("time.lengths", SHAPE(1), 3);
  cr_assert(run_sized(RAGGED, ITEMS), "the check is about the length of the item");
}

Test(eval_run, lengths_are_checked) {
  F32("x", SHAPE(2, 3), 0, 0, 0, 0, 0, 0);
  I32("time.lengths", SHAPE(3), 1, 2, 3);
  fails(RAGGED, ITEMS, DIAG_INPUT_SHAPE, "'time.lengths' must be i32[batch = 2], not i32[3]");
  F32("x", SHAPE(2, 3), 0, 0, 0, 0, 0, 0);
  I32("time.lengths", SHAPE(2), 1, 4);
  fails(RAGGED, ITEMS, DIAG_INPUT_VALUE, "'time.lengths' has a length of 4, but time is 3");
  F32("x", SHAPE(2, 3), 0, 0, 0, 0, 0, 0);
  I32("time.lengths", SHAPE(2), -1, 3);
  fails(RAGGED, ITEMS, DIAG_INPUT_VALUE, "-1");
}

Test(eval_run, ids_in_the_padding_may_be_anything) {
#define LOOKUP "%0 = input \"ids\" : i32[batch, time]\n%1 = full 7.0 : f32[5]\n%2 = gather %1, %0 : f32[batch, time]\noutput z = %2"
  I32("ids", SHAPE(2, 2), 1, 99, 4, 0);
  I32("time.lengths", SHAPE(2), 1, 2);
  cr_assert(run_sized(RAGGED, LOOKUP));
  WANT_F32(SHAPE(2, 2), 7, 0, 7, 7);
  I32("ids", SHAPE(2, 2), 1, 99, 4, 5);
  I32("time.lengths", SHAPE(2), 1, 2);
  fails(RAGGED, LOOKUP, DIAG_INPUT_VALUE, "input \"ids\"[1,1] = 5, legal range is [0, 5)");
}
