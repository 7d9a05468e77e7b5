/* What tests of the compiler stand on: an arena and messages for each test, graphs and plans made from text.
 *
 * In: text of a model or of a graph. Out: what the compiler makes of it. Unless it says otherwise, a function here
 * fails the test and prints the first message when the compiler refuses. */
#ifndef TFM_TESTS_COMPILED_GRAPH_H
#define TFM_TESTS_COMPILED_GRAPH_H

#include "elaborate_text.h"
#include "passes/passes.h"
#include "plan/plan.h"

/* Of the test that runs: TestSuite(name, .init = setup, .fini = teardown). */
extern Arena *arena;
extern Map interned;
extern Diag diag;
void setup(void);
void teardown(void);

const char *fault(void);    /* the first message of `diag` */
const char *messages(void); /* all of them, as a terminal without colors shows them */

/* NULL after an error. */
Graph *graph_from_text(const char *text);

Graph *elaborated(const char *text);
Graph *optimized(Graph *graph, int level); /* the same graph after all passes of a level */
Graph *read_graph(const char *text);       /* verified */
const char *printed(Graph *graph);

Plan *planned(Graph *graph, const char *target);
const Plan *plan_of_program(const tfm_program *program);
uint32_t count_steps(const tfm_program *program, tfm_step_kind kind);
void expect_size(const tfm_program *program, tfm_size size, const char *text);

#endif
