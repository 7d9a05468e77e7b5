/* Outputs: what a run computed, written to files or shown.
 *
 * In: the names of --output, tensors. Out: files, each complete or absent, or a summary on stdout. What can be refused
 * (names, files that are also inputs, formats) is refused before anything is computed. */
#ifndef TFM_CLI_OUTPUTS_H
#define TFM_CLI_OUTPUTS_H

#include "cli/session.h"
#include "graph/eval.h"

/* Whether the files that --output names can be written, each by one tensor or by all, and are none that the command
 * line has read: before anything is computed. */
bool outputs_check_files(Session *session);
/* Whether the outputs that --output names are the model's. */
bool outputs_check_names(Session *session, const Graph *graph);
/* Writes what --output asks for, else prints a summary. */
void outputs_write(Session *session, const Graph *graph, const Tensor *outputs);

/* The same for tensors that are no outputs of a model. `of` is whose they are: "the model". */
bool outputs_check_named(Session *session, const char *of, const char *const *names, uint32_t n);
/* Whether an --output asks for this tensor alone. */
bool outputs_names_one(Session *session, const char *name);
/* Only to the files of --output. */
void outputs_write_named(Session *session, const char *const *names, const Tensor *tensors, uint32_t n);

/* A tensor for people: name, shape, range, and its first elements. */
void tensor_print_summary(StrBuf *out, const char *name, const Tensor *tensor);
/* One element as text, with the digits that it needs. */
void tensor_print_element(StrBuf *out, const Tensor *tensor, int64_t index);
/* "[1, 0, 3]", the coordinates of an element. */
void tensor_print_place(StrBuf *out, const Tensor *tensor, int64_t index);

#endif
