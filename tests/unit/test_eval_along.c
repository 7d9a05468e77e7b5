/* The reference interpreter: what selects or adds up along one axis, powers, reductions of i32. */
#include "eval_case.h"

TestSuite(eval_along, .init = setup, .fini = teardown);

Test(eval_along, running_sums_begin_with_the_first_element_and_round_each_addition) {
  F32("x", SHAPE(2, 3), -0.0f, 1e8f, 1, 3, NAN, 1);
  run("%0 = input \"x\" : f32[2, 3]\n%1 = cumsum %0, axis=1 : f32[2, 3]\noutput y = %1");
  WANT_F32(SHAPE(2, 3), -0.0f, 1e8f, 1e8f, 3, NAN, NAN);
  I32("x", SHAPE(2, 2), INT_MAX, 1, 1, 2);
  run("%0 = input \"x\" : i32[2, 2]\n%1 = cumsum %0, axis=0 : i32[2, 2]\noutput y = %1");
  WANT_I32(SHAPE(2, 2), INT_MAX, 1, INT_MIN, 3);
}

Test(eval_along, elements_are_moved_along_and_nothing_comes_from_beyond_the_ends) {
  F32("x", SHAPE(2, 3), -0.0f, 1, NAN, 4, 5, 6);
  run("%0 = input \"x\" : f32[2, 3]\n%1 = shift %0, 1, axis=1 : f32[2, 3]\noutput y = %1");
  WANT_F32(SHAPE(2, 3), 0, -0.0f, 1, 0, 4, 5);
  F32("x", SHAPE(2, 3), -0.0f, 1, NAN, 4, 5, 6);
  run("%0 = input \"x\" : f32[2, 3]\n%1 = shift %0, -2, axis=1 : f32[2, 3]\noutput y = %1");
  WANT_F32(SHAPE(2, 3), NAN, 0, 0, 6, 0, 0);
  F32("x", SHAPE(2, 3), -0.0f, 1, NAN, 4, 5, 6);
  run("%0 = input \"x\" : f32[2, 3]\n%1 = shift %0, -9223372036854775807, axis=0 : f32[2, 3]\noutput y = %1");
  WANT_F32(SHAPE(2, 3), 0, 0, 0, 0, 0, 0);
}

Test(eval_along, the_greatest_come_in_order_with_the_lowest_index_first) {
  F32("x", SHAPE(2, 5), 1, 3, -0.0f, 3, 0, NAN, 7, NAN, INFINITY, 8);
  run("%0 = input \"x\" : f32[2, 5]\n%1 = topk %0, axis=1 : i32[2, 4]\noutput y = %1");
  WANT_I32(SHAPE(2, 4), 1, 3, 0, 2, 0, 2, 3, 4);
  F32("x", SHAPE(2), 0, -0.0f);
  run("%0 = input \"x\" : f32[2]\n%1 = topk %0, axis=0 : i32[1]\noutput y = %1");
  WANT_I32(SHAPE(1), 0);
}

Test(eval_along, elements_are_taken_along_an_axis_while_the_others_broadcast) {
  F32("x", SHAPE(1, 3), 10, 20, 30);
  I32("i", SHAPE(2, 2), 2, 0, 1, 1);
  run("%0 = input \"x\" : f32[1, 3]\n%1 = input \"i\" : i32[2, 2]\n%2 = take %0, %1, axis=1 : f32[2, 2]\noutput y = %2");
  WANT_F32(SHAPE(2, 2), 30, 10, 20, 20);
}

Test(eval_along, rows_are_added_to_those_that_ids_name_one_after_the_other) {
  F32("x", SHAPE(4, 2), 1e8f, 1, 2, 2, -1e8f, 3, 5, 4);
  I32("i", SHAPE(4), 2, 0, 2, 2);
  run("%0 = input \"x\" : f32[4, 2]\n%1 = input \"i\" : i32[4]\n%2 = scatter %0, %1 : f32[3, 2]\noutput y = %2");
  WANT_F32(SHAPE(3, 2), 2, 2, 0, 0, 5, 8);
  F32("x", SHAPE(2, 1), -1e8f, 1);
  I32("i", SHAPE(2), 1, 1);
  F32("s", SHAPE(2, 1), 7, 1e8f);
  run("%0 = input \"x\" : f32[2, 1]\n%1 = input \"i\" : i32[2]\n%2 = input \"s\" : f32[2, 1]\n"
      "%3 = scatter %0, %1, %2 : f32[2, 1]\noutput y = %3");
  WANT_F32(SHAPE(2, 1), 7, 1);
}

Test(eval_along, every_second_element) {
  I32("x", SHAPE(5, 1), 1, 2, 3, 4, 5);
  run("%0 = input \"x\" : i32[5, 1]\n%1 = every %0, 2, axis=0 : i32[3, 1]\noutput y = %1");
  WANT_I32(SHAPE(3, 1), 1, 3, 5);
}

Test(eval_along, true_elements_stand_before_false_ones_where_before_says) {
  BOOL("x", SHAPE(2, 4), 0, 1, 0, 1, 1, 0, 0, 0);
  run("%0 = input \"x\" : bool[2, 4]\n%1 = places %0, axis=1 : i32[2, 4]\noutput y = %1");
  WANT_I32(SHAPE(2, 4), 1, 3, 0, 2, 0, 1, 2, 3);
  BOOL("x", SHAPE(2, 4), 0, 1, 0, 1, 1, 0, 0, 0);
  run("%0 = input \"x\" : bool[2, 4]\n%1 = before %0, axis=1 : i32[2, 4]\noutput y = %1");
  WANT_I32(SHAPE(2, 4), 0, 0, 1, 1, 0, 1, 1, 1);
  BOOL("x", SHAPE(3, 2), 0, 1, 1, 1, 1, 0);
  run("%0 = input \"x\" : bool[3, 2]\n%1 = places %0, axis=0 : i32[3, 2]\noutput y = %1");
  WANT_I32(SHAPE(3, 2), 1, 0, 2, 1, 0, 2);
}

Test(eval_along, powers) {
  F32("x", SHAPE(4), 2, -8, 0, 9);
  F32("y", SHAPE(4), 10, 3, 0, 0.5f);
  run("%0 = input \"x\" : f32[4]\n%1 = input \"y\" : f32[4]\n%2 = power %0, %1 : f32[4]\noutput z = %2");
  WANT_F32(SHAPE(4), 1024, -512, 1, 3);
}

Test(eval_along, integers_are_summed_modulo_32_bits_and_compared_exactly) {
  I32("x", SHAPE(2, 2), INT_MAX, 1, 16777217, 16777216);
  run("%0 = input \"x\" : i32[2, 2]\n%1 = sum %0, axis=1 : i32[2]\noutput y = %1");
  WANT_I32(SHAPE(2), INT_MIN, 33554433);
  I32("x", SHAPE(2, 2), INT_MAX, 1, 16777217, 16777216);
  run("%0 = input \"x\" : i32[2, 2]\n%1 = max %0, axis=1, keepdim=true : i32[2, 1]\noutput y = %1");
  WANT_I32(SHAPE(2, 1), INT_MAX, 16777217);
  I32("x", SHAPE(2, 2), INT_MAX, 1, 16777217, 16777216);
  run("%0 = input \"x\" : i32[2, 2]\n%1 = min %0, axis=0 : i32[2]\noutput y = %1");
  WANT_I32(SHAPE(2), 16777217, 1);
}
