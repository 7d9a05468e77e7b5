/* When runs of a pool are the caller's alone: other work has the CPUs, and threads wait for each other. */
#include <criterion/criterion.h>

#include "pool/crowd.h"

#define MS INT64_C(1000000)

/* Ten runs of two threads, 20 ms in all, in which they waited `share` of the time and lost a CPU so often. */
static void look(Crowd *crowd, int64_t now, double share, int32_t lost) {
  bool is_time = false;
  for (int i = 0; i < 10; i++) {
    const Waits waits = {(int64_t)(share * 2e6), i == 0 ? lost : 0};
    if (crowd_note(crowd, 2, 2 * MS, waits)) crowd_judge(crowd, now), is_time = true;
  }
  cr_assert(is_time);
}

Test(crowd, idle_cpus_change_nothing) {
  Crowd crowd = {0};
  look(&crowd, 100 * MS, 0.9, 0); /* steps too uneven for two, and nobody else */
  cr_assert_eq(crowd_threads(&crowd, 2, 101 * MS), 2);
  look(&crowd, 200 * MS, 0.3, 50); /* others came, and two threads go on well */
  cr_assert_eq(crowd_threads(&crowd, 2, 201 * MS), 2);
}

Test(crowd, the_caller_is_alone_for_a_while) {
  Crowd crowd = {0};
  look(&crowd, 100 * MS, 0.9, 10);
  cr_assert_eq(crowd_threads(&crowd, 2, 101 * MS), 1);
  cr_assert_eq(crowd_threads(&crowd, 2, 299 * MS), 1);
  cr_assert_eq(crowd_threads(&crowd, 2, 300 * MS), 2);
  look(&crowd, 400 * MS, 0.9, 2); /* they are still there: twice as long */
  cr_assert_eq(crowd_threads(&crowd, 2, 799 * MS), 1);
  cr_assert_eq(crowd_threads(&crowd, 2, 800 * MS), 2);
  look(&crowd, 900 * MS, 0.1, 30); /* they have gone */
  cr_assert_eq(crowd_threads(&crowd, 2, 901 * MS), 2);
  look(&crowd, 1000 * MS, 0.9, 40);
  cr_assert_eq(crowd_threads(&crowd, 2, 1199 * MS), 1);
  cr_assert_eq(crowd_threads(&crowd, 2, 1200 * MS), 2);
}

Test(crowd, a_rest_has_an_end) {
  Crowd crowd = {0};
  int64_t now = 0;
  for (int i = 1; i < 20; i++, now += 4000 * MS) look(&crowd, now, 1, 10);
  cr_assert_eq(crowd_threads(&crowd, 4, now - 4000 * MS + 3199 * MS), 1);
  cr_assert_eq(crowd_threads(&crowd, 4, now - 4000 * MS + 3200 * MS), 4);
}

/* Eight threads that wait for half of the time do four times what one does. */
Test(crowd, many_threads_that_give_much_stay) {
  Crowd crowd = {0};
  for (int i = 0; i < 10; i++) crowd_note(&crowd, 8, 2 * MS, (Waits){8 * MS, 5});
  crowd_judge(&crowd, 100 * MS);
  cr_assert_eq(crowd_threads(&crowd, 8, 101 * MS), 8);
  for (int i = 0; i < 10; i++) crowd_note(&crowd, 8, 2 * MS, (Waits){14 * MS, 5});
  crowd_judge(&crowd, 200 * MS);
  cr_assert_eq(crowd_threads(&crowd, 8, 201 * MS), 1);
}
